// p2: a uniform grid of 2 bits in nested planes. value = scale * (2 code - 3), scale in bf16 per 64 columns
struct P2 {
  static constexpr Format kFormat = Format::p2;
  using Codes = FieldPlanes<0>;
  using Scales = GroupScales<2, 3>;
};
