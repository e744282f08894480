// ggml iq4_nl: 32 columns with one f16 scale; codes stand for 16 uneven values. value = scale * table[code]
struct IQ4_NL {
  static constexpr Format kFormat = Format::iq4_nl;
  using Codes = UnevenCodes;
  using Scales = HalfGroupScales<0>;

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
