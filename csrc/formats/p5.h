// p5: a uniform grid of 5 bits in nested planes. value = scale * (2 code - 31), scale in bf16 per 64 columns
struct P5 {
  static constexpr Format kFormat = Format::p5;
  using Codes = FieldPlanes<3>;
  using Scales = GroupScales<2, 31>;
};
