// ggml q5_k: q4_k with a fifth bit; 256 columns in 8 runs of 32.
struct Q5_K {
  static constexpr Format kFormat = Format::q5_k;
  using Codes = NibblePlaneCodes;
  using Scales = SuperMinScales;

  static constexpr int kBlockColumns = 256;
  struct [[gnu::packed]] Block {
    std::uint16_t scale, minimum;
    std::uint8_t packed[12];
    std::uint8_t high[32];      // bit r: the highest bit of the codes of run r
    std::uint8_t nibbles[128];  // 64 columns in 32 bytes: the low nibbles are the first 32
  };
  static_assert(sizeof(Block) == 176);

  static inline void decode(const Block& block, int first_column, std::uint8_t* codes) {
    const std::uint8_t* nibbles = block.nibbles + first_column / 2;
    const int run = first_column / 32;
    for (int i = 0; i < 32; i += 16) {
      put_codes(codes + i, take_bits(nibbles + i, 0, 0x0f) | place_bits(block.high + i, run, 1, 4));
      put_codes(codes + 32 + i, take_bits(nibbles + i, 4, 0x0f) | place_bits(block.high + i, run + 1, 1, 4));
    }
  }
  static inline void put_scales(const Block& block, int index, int lane, std::uint8_t* const parts[]) {
    Scales::put(parts, index, lane, block.scale, block.minimum, block.packed);
  }
};
