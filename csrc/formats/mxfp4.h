// ggml mxfp4 (OCP Microscaling): 32 columns of e2m1 floats with a power of two. value = scale / 2 * (2 * element)
struct MXFP4 {
  static constexpr Format kFormat = Format::mxfp4;
  using Codes = MicroCodes;
  using Scales = ExponentScales<12>;

  static constexpr int kBlockColumns = 32;
  struct [[gnu::packed]] Block {
    std::uint8_t exponent;
    std::uint8_t nibbles[16];
  };
  static_assert(sizeof(Block) == 17);

  static inline void decode(const Block& block, int, std::uint8_t* codes) { decode_nibbles(block.nibbles, codes); }
  static inline void put_scales(const Block& block, int index, int lane, std::uint8_t* const parts[]) {
    Scales::put(parts, index / 2, index % 2, lane, block.exponent);
  }
};
