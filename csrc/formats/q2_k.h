// ggml q2_k: 256 columns of 2 bits in 16 runs of 16, each with a 4-bit sub-scale and sub-minimum.
struct Q2_K {
  static constexpr Format kFormat = Format::q2_k;
  using Codes = FieldPlanes<0>;
  using Scales = SuperMinNibbleScales;

  static constexpr int kBlockColumns = 256;
  struct [[gnu::packed]] Block {
    std::uint8_t sub[16];  // of each run: the sub-scale in the low half, the sub-minimum in the high one
    std::uint8_t fields[64];
    std::uint16_t scale, minimum;
  };
  static_assert(sizeof(Block) == 84);

  static inline void decode(const Block& block, int first_column, std::uint8_t* codes) {
    decode_fields(block.fields, first_column, codes);
  }
  static inline void put_scales(const Block& block, int index, int lane, std::uint8_t* const parts[]) {
    std::uint8_t* super = parts[0] + 64 * static_cast<std::int64_t>(index) + 2 * lane;
    __builtin_memcpy(super, &block.scale, 2);
    __builtin_memcpy(super + 32, &block.minimum, 2);
    for (int run = 0; run < 16; ++run)
      parts[1][16 * (16 * static_cast<std::int64_t>(index) + run) + lane] = block.sub[run];
  }
};
