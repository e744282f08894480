// c2: a codebook of 4 values in nested planes. value = scale * table[code], scale in bf16 per 64 columns
struct C2 {
  static constexpr Format kFormat = Format::c2;
  using Codes = CodebookPlanes<0>;
  using Scales = GroupScales<1, 0>;
};
