// p3: a uniform grid of 3 bits in nested planes. value = scale * (2 code - 7), scale in bf16 per 64 columns
struct P3 {
  static constexpr Format kFormat = Format::p3;
  using Codes = FieldPlanes<1>;
  using Scales = GroupScales<2, 7>;
};
