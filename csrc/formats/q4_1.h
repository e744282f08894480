// ggml q4_1: 32 columns with one f16 scale and minimum; the low nibbles are the first 16 columns.
struct Q4_1 {
  static constexpr Format kFormat = Format::q4_1;
  using Codes = NibbleCodes;
  using Scales = HalfGroupMinScales;

  static constexpr int kBlockColumns = 32;
  struct [[gnu::packed]] Block {
    std::uint16_t scale, minimum;
    std::uint8_t nibbles[16];
  };
  static_assert(sizeof(Block) == 20);

  static inline void decode(const Block& block, int, std::uint8_t* codes) { decode_nibbles(block.nibbles, codes); }
  static inline void put_scales(const Block& block, int index, int lane, std::uint8_t* const parts[]) {
    Scales::put(parts, index / 2, index % 2, lane, block.scale, block.minimum);
  }
};
