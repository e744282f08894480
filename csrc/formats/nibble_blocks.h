// How blocks of 32 columns hold their codes: the low nibbles are the first 16 columns, the high ones the others.
static inline void decode_nibbles(const std::uint8_t (&nibbles)[16], std::uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = nibbles[i] & 0x0f;
    codes[16 + i] = static_cast<std::uint8_t>(nibbles[i] >> 4);
  }
}
// The fifth and highest bit of column i is bit i % 8 of byte i / 8.
static inline void decode_five_bits(const std::uint8_t (&nibbles)[16], const std::uint8_t (&high)[4],
                                    std::uint8_t* codes) {
  decode_nibbles(nibbles, codes);
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<std::uint8_t>(codes[i] | (((high[i / 8] >> (i % 8)) & 1) << 4));
}

// Blocks of one f16 scale and 32 nibbles (q4_0, iq4_nl).
template <class HalfGroup>
struct ScaledNibbles {
  using Scales = HalfGroup;
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
