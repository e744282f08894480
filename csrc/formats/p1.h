// p1: the sign of every weight. value = scale * (2 code - 1), scale in bf16 per 64 columns
struct P1 {
  static constexpr Format kFormat = Format::p1;
  using Codes = QuadBits;
  using Scales = GroupScales<2, 1>;
};
