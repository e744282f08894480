// ggml tq2_0: 256 ternary columns of 2 bits with one f16 scale. value = scale * (code - 1)
struct TQ2_0 {
  static constexpr Format kFormat = Format::tq2_0;
  using Codes = FieldPlanes<0>;
  using Scales = FourGroupScales<HalfFloats, 1>;

  static constexpr int kBlockColumns = 256;
  struct [[gnu::packed]] Block {
    std::uint8_t fields[64];
    std::uint16_t scale;
  };
  static_assert(sizeof(Block) == 66);

  static inline void decode(const Block& block, int first_column, std::uint8_t* codes) {
    decode_fields(block.fields, first_column, codes);
  }
  static inline void put_scales(const Block& block, int index, int lane, std::uint8_t* const parts[]) {
    Scales::put(parts, index, lane, block.scale);
  }
};
