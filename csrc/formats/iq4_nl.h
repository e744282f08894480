// ggml iq4_nl: 32 columns with one f16 scale; codes stand for 16 uneven values. value = scale * table[code]
struct IQ4_NL : ScaledNibbles<HalfGroupScales<0>> {
  static constexpr Format kFormat = Format::iq4_nl;
  using Codes = UnevenCodes;
};
