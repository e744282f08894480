// ggml q5_1: 32 columns of 5 bits with one f16 scale and minimum.
struct Q5_1 {
  static constexpr Format kFormat = Format::q5_1;
  using Codes = NibblePlaneCodes;
  using Scales = HalfGroupMinScales;

  static constexpr int kBlockColumns = 32;
  struct [[gnu::packed]] Block {
    std::uint16_t scale, minimum;
    std::uint8_t high[4];
    std::uint8_t nibbles[16];
  };
  static_assert(sizeof(Block) == 24);

  static inline void decode(const Block& block, int, std::uint8_t* codes) {
    decode_five_bits(block.nibbles, block.high, codes);
  }
  static inline void put_scales(const Block& block, int index, int lane, std::uint8_t* const parts[]) {
    Scales::put(parts, index / 2, index % 2, lane, block.scale, block.minimum);
  }
};
