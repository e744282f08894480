// c3: a codebook of 8 values in nested planes. value = scale * table[code], scale in bf16 per 64 columns
struct C3 {
  static constexpr Format kFormat = Format::c3;
  using Codes = CodebookPlanes<1>;
  using Scales = GroupScales<1, 0>;
};
