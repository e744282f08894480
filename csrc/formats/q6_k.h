// ggml q6_k: 256 columns in 16 runs of 16 with signed 8-bit sub-scales. value = (scale * subscale) * (code - 32)
struct Q6_K {
  static constexpr Format kFormat = Format::q6_k;
  using Codes = NibbleFieldCodes;
  using Scales = SuperScales<4, 32>;

  static constexpr int kBlockColumns = 256;
  struct [[gnu::packed]] Block {
    std::uint8_t low[128];  // per half of 128 columns 64 bytes: the low nibbles are its first 64 columns
    std::uint8_t high[64];  // per half 32 bytes: bits 2i and 2i + 1 are columns 32i to 32i + 31
    std::int8_t subscales[16];
    std::uint16_t scale;
  };
  static_assert(sizeof(Block) == 210);

  static inline void decode(const Block& block, int first_column, std::uint8_t* codes) {
    const int half = first_column / 128, quarter = first_column % 128 / 64;
    const std::uint8_t *low = block.low + 64 * half, *high = block.high + 32 * half;
    for (int i = 0; i < 32; i += 16) {
      put_codes(codes + i, take_bits(low + i, 4 * quarter, 0x0f) | place_bits(high + i, 4 * quarter, 3, 4));
      put_codes(codes + 32 + i,
                take_bits(low + 32 + i, 4 * quarter, 0x0f) | place_bits(high + i, 4 * quarter + 2, 3, 4));
    }
  }
  static inline void put_scales(const Block& block, int index, int lane, std::uint8_t* const parts[]) {
    __builtin_memcpy(parts[0] + 32 * static_cast<std::int64_t>(index) + 2 * lane, &block.scale, 2);
    for (int run = 0; run < 16; ++run) {
      const std::int64_t at = 16 * (16 * static_cast<std::int64_t>(index) + run) + lane;
      parts[1][at] = static_cast<std::uint8_t>(block.subscales[run]);
    }
  }
};
