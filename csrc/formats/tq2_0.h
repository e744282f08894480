// ggml tq2_0: 256 ternary columns of 2 bits with one f16 scale. value = scale * (code - 1)
struct TQ2_0 {
  static constexpr Format kFormat = Format::tq2_0;
  using Codes = FieldPlanes<0>;
  using Scales = FourGroupScales<1>;

  static constexpr int kBlockColumns = 256;
  struct Block {
    std::uint8_t fields[64];  // per half of 128 columns 32 bytes: bits 2i and 2i + 1 are columns 32i to 32i + 31
    std::uint16_t scale;
  };
  static_assert(sizeof(Block) == 66);

  static inline void decode(const Block& block, int first_column, std::uint8_t* codes) {
    const int half = first_column / 128, quarter = first_column % 128 / 64;
    for (int i = 0; i < 32; ++i) {
      const int bits = block.fields[32 * half + i] >> (4 * quarter);
      codes[i] = bits & 3;
      codes[32 + i] = (bits >> 2) & 3;
    }
  }
  static inline void put_scales(const Block& block, int index, int lane, std::uint8_t* const parts[]) {
    Scales::put(parts, index, lane, block.scale);
  }
};
