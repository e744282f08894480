// p6: a uniform grid of 6 bits in nested planes. value = scale * (2 code - 63), scale in bf16 per 64 columns
struct P6 {
  static constexpr Format kFormat = Format::p6;
  using Codes = FieldPlanes<4>;
  using Scales = GroupScales<2, 63>;
};
