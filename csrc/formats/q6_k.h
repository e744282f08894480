// ggml q6_k: 256 columns in 16 runs of 16 with signed 8-bit sub-scales. value = (scale * subscale) * (code - 32)
struct Q6_K {
  static constexpr Format kFormat = Format::q6_k;
  using Codes = NibbleFieldCodes;
  using Scales = SuperScales<32>;

  static constexpr int kBlockColumns = 256;
  struct Block {
    std::uint8_t low[128];  // per half of 128 columns 64 bytes: the low nibbles are its first 64 columns
    std::uint8_t high[64];  // per half 32 bytes: bits 2i and 2i + 1 are columns 32i to 32i + 31
    std::int8_t subscales[16];
    std::uint16_t scale;
  };
  static_assert(sizeof(Block) == 210);

  static inline int code(const Block& block, int column) {
    const int half = column / 128, c = column % 128;
    const int low = (block.low[64 * half + c % 64] >> (4 * (c / 64))) & 0x0f;
    const int high = (block.high[32 * half + c % 32] >> (2 * (c / 32))) & 3;
    return low | (high << 4);
  }
  static inline void put_scales(const Block& block, int index, int lane, std::uint8_t* const parts[]) {
    __builtin_memcpy(parts[0] + 32 * static_cast<std::int64_t>(index) + 2 * lane, &block.scale, 2);
    for (int run = 0; run < 16; ++run) {
      const std::int64_t at = 16 * (16 * static_cast<std::int64_t>(index) + run) + lane;
      parts[1][at] = static_cast<std::uint8_t>(block.subscales[run]);
    }
  }
};
