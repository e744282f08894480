// ggml q4_k: 256 columns in 8 runs of 32; 6-bit scales and minima of the runs are squeezed into 12 bytes.
struct Q4_K {
  static constexpr Format kFormat = Format::q4_k;
  using Codes = NibbleCodes;
  using Scales = SuperMinScales;

  static constexpr int kBlockColumns = 256;
  struct Block {
    std::uint16_t scale, minimum;
    std::uint8_t packed[12];
    std::uint8_t nibbles[128];  // 64 columns in 32 bytes: the low nibbles are the first 32
  };
  static_assert(sizeof(Block) == 144);

  static inline void decode(const Block& block, int first_column, std::uint8_t* codes) {
    const std::uint8_t* nibbles = block.nibbles + first_column / 2;
    for (int i = 0; i < 32; ++i) {
      codes[i] = nibbles[i] & 0x0f;
      codes[32 + i] = static_cast<std::uint8_t>(nibbles[i] >> 4);
    }
  }
  // Runs 0 to 3 have their six bits in bytes 0..3 (scales) and 4..7 (minima); of runs 4 to 7 the low four bits are in
  // bytes 8..11 and the high two on top of the first eight bytes.
  static inline int subscale(const Block& block, int run) {
    const std::uint8_t* b = block.packed;
    return run < 4 ? b[run] & 63 : (b[run + 4] & 0x0f) | ((b[run - 4] >> 6) << 4);
  }
  static inline int submin(const Block& block, int run) {
    const std::uint8_t* b = block.packed;
    return run < 4 ? b[run + 4] & 63 : (b[run + 4] >> 4) | ((b[run] >> 6) << 4);
  }
  static inline void put_scales(const Block& block, int index, int lane, std::uint8_t* const parts[]) {
    std::uint8_t* super = parts[0] + 64 * static_cast<std::int64_t>(index) + 2 * lane;
    __builtin_memcpy(super, &block.scale, 2);
    __builtin_memcpy(super + 32, &block.minimum, 2);
    for (int run = 0; run < 8; ++run) {
      const std::int64_t at = 16 * (8 * static_cast<std::int64_t>(index) + run) + lane;
      parts[1][at] = static_cast<std::uint8_t>(subscale(block, run));
      parts[2][at] = static_cast<std::uint8_t>(submin(block, run));
    }
  }
};
