// ternary: codes 0, 1 and 2, five in a byte. value = scale * (code - 1), scale in bf16 per 256 columns
struct Ternary {
  static constexpr Format kFormat = Format::ternary;
  using Codes = TritCodes;
  using Scales = FourGroupScales<BrainFloats, 1>;
};
