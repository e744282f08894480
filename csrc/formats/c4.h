// c4: a codebook of 16 values in nested planes. value = scale * table[code], scale in bf16 per 64 columns
struct C4 {
  static constexpr Format kFormat = Format::c4;
  using Codes = CodebookPlanes<2>;
  using Scales = GroupScales<1, 0>;
};
