// p8: signed bytes, -127..127. value = scale * code, scale in bf16 per 64 columns
struct P8 {
  static constexpr Format kFormat = Format::p8;
  using Codes = ByteCodes;
  using Scales = GroupScales<1, 0>;
};
