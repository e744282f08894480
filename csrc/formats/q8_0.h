// ggml q8_0: 32 columns with one f16 scale and signed bytes.
struct Q8_0 {
  static constexpr Format kFormat = Format::q8_0;
  using Codes = ByteCodes;
  using Scales = HalfGroupScales<0>;

  static constexpr int kBlockColumns = 32;
  struct [[gnu::packed]] Block {
    std::uint16_t scale;
    std::int8_t codes[32];
  };
  static_assert(sizeof(Block) == 34);

  static inline void decode(const Block& block, int, std::uint8_t* codes) { __builtin_memcpy(codes, block.codes, 32); }
  static inline void put_scales(const Block& block, int index, int lane, std::uint8_t* const parts[]) {
    Scales::put(parts, index / 2, index % 2, lane, block.scale);
  }
};
