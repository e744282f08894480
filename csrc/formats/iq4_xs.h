// ggml iq4_xs: the values of iq4_nl with 6-bit sub-scales for 8 runs of 32 columns.
// value = (scale * subscale) * table[code]
struct IQ4_XS {
  static constexpr Format kFormat = Format::iq4_xs;
  using Codes = UnevenCodes;
  using Scales = SuperScales<2, 0>;

  static constexpr int kBlockColumns = 256;
  struct [[gnu::packed]] Block {
    std::uint16_t scale;
    std::uint16_t high;         // bits 2r and 2r + 1: the upper two of run r's sub-scale, which is 32 less
    std::uint8_t low[4];        // its lower four: a half of byte r / 2
    std::uint8_t nibbles[128];  // 32 columns in 16 bytes: the low nibbles are the first 16
  };
  static_assert(sizeof(Block) == 136);

  static inline void decode(const Block& block, int first_column, std::uint8_t* codes) {
    const std::uint8_t* nibbles = block.nibbles + first_column / 2;
    decode_nibbles(nibbles, codes);
    decode_nibbles(nibbles + 16, codes + 32);
  }
  static inline void put_scales(const Block& block, int index, int lane, std::uint8_t* const parts[]) {
    __builtin_memcpy(parts[0] + 32 * static_cast<std::int64_t>(index) + 2 * lane, &block.scale, 2);
    for (int run = 0; run < 8; ++run) {
      const int low = (block.low[run / 2] >> (4 * (run % 2))) & 0x0f, high = (block.high >> (2 * run)) & 3;
      const std::int64_t at = 16 * (8 * static_cast<std::int64_t>(index) + run) + lane;
      parts[1][at] = static_cast<std::uint8_t>((low | (high << 4)) - 32);
    }
  }
};
