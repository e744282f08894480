// How blocks of 32 columns hold their codes: the low nibbles are the first 16 columns, the high ones the others.
static inline void decode_nibbles(const std::uint8_t* nibbles, std::uint8_t* codes) {
  put_codes(codes, take_bits(nibbles, 0, 0x0f));
  put_codes(codes + 16, take_bits(nibbles, 4, 0x0f));
}
// Bit i becomes byte i.
static inline std::uint64_t spread_to_bytes(std::uint8_t bits) {
  const std::uint64_t own = (bits * 0x0101010101010101u) & 0x8040201008040201u;  // each byte its bit, or 0
  return (((own & 0x7f7f7f7f7f7f7f7fu) + 0x7f7f7f7f7f7f7f7fu) | own) >> 7 & 0x0101010101010101u;
}
// The fifth and highest bit of column i is bit i % 8 of byte i / 8.
static inline void decode_five_bits(const std::uint8_t (&nibbles)[16], const std::uint8_t (&high)[4],
                                    std::uint8_t* codes) {
  decode_nibbles(nibbles, codes);
  for (int i = 0; i < 4; ++i) {
    std::uint64_t eight;
    __builtin_memcpy(&eight, codes + 8 * i, 8);
    eight |= spread_to_bytes(high[i]) << 4;
    __builtin_memcpy(codes + 8 * i, &eight, 8);
  }
}

// Blocks of one f16 scale and 32 nibbles (q4_0, iq4_nl).
template <class HalfGroup>
struct ScaledNibbles {
  using Scales = HalfGroup;
  static constexpr int kBlockColumns = 32;
  struct [[gnu::packed]] Block {
    std::uint16_t scale;
    std::uint8_t nibbles[16];
  };
  static_assert(sizeof(Block) == 18);

  static inline void decode(const Block& block, int, std::uint8_t* codes) { decode_nibbles(block.nibbles, codes); }
  static inline void put_scales(const Block& block, int index, int lane, std::uint8_t* const parts[]) {
    Scales::put(parts, index / 2, index % 2, lane, block.scale);
  }
};
