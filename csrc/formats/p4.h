// p4: a uniform grid of 4 bits in nested planes. value = scale * (2 code - 15), scale in bf16 per 64 columns
struct P4 {
  static constexpr Format kFormat = Format::p4;
  using Codes = FieldPlanes<2>;
  using Scales = GroupScales<2, 15>;
};
