// ggml q4_0: 32 columns with one f16 scale; the low nibbles are the first 16 columns. value = scale * (code - 8)
struct Q4_0 : ScaledNibbles<HalfGroupScales<8>> {
  static constexpr Format kFormat = Format::q4_0;
  using Codes = NibbleCodes;
};
