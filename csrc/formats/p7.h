// p7: a uniform grid of 7 bits in nested planes. value = scale * (2 code - 127), scale in bf16 per 64 columns
struct P7 {
  static constexpr Format kFormat = Format::p7;
  using Codes = FieldPlanes<5>;
  using Scales = GroupScales<2, 127>;
};
