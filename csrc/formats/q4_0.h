// ggml q4_0: 32 columns with one f16 scale; the low nibbles are the first 16 columns. value = scale * (code - 8)
struct Q4_0 {
  static constexpr Format kFormat = Format::q4_0;
  using Codes = NibbleCodes;
  using Scales = HalfGroupScales<8>;

  static constexpr int kBlockColumns = 32;
  struct Block {
    std::uint16_t scale;
    std::uint8_t nibbles[16];
  };
  static_assert(sizeof(Block) == 18);

  static inline void decode(const Block& block, int, std::uint8_t* codes) { decode_nibbles(block.nibbles, codes); }
  static inline void put_scales(const Block& block, int index, int lane, std::uint8_t* const parts[]) {
    Scales::put(parts, index / 2, index % 2, lane, block.scale);
  }
};
