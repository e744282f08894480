// ggml q3_k: 256 columns of 3 bits in 16 runs of 16 with 6-bit sub-scales. value = (scale * subscale) * (code - 4)
struct Q3_K {
  static constexpr Format kFormat = Format::q3_k;
  using Codes = FieldPlanes<1>;
  using Scales = SuperScales<4, 4>;

  static constexpr int kBlockColumns = 256;
  struct [[gnu::packed]] Block {
    std::uint8_t high[32];    // bit i: the highest bit of columns 32i to 32i + 31
    std::uint8_t fields[64];  // per half of 128 columns 32 bytes: bits 2i and 2i + 1 are columns 32i to 32i + 31
    std::uint8_t packed[12];
    std::uint16_t scale;
  };
  static_assert(sizeof(Block) == 110);

  static inline void decode(const Block& block, int first_column, std::uint8_t* codes) {
    const int half = first_column / 128, quarter = first_column % 128 / 64;
    const std::uint8_t* fields = block.fields + 32 * half;
    const int run = first_column / 32;
    for (int i = 0; i < 32; i += 16) {
      put_codes(codes + i, take_bits(fields + i, 4 * quarter, 3) | place_bits(block.high + i, run, 1, 2));
      put_codes(codes + 32 + i, take_bits(fields + i, 4 * quarter + 2, 3) | place_bits(block.high + i, run + 1, 1, 2));
    }
  }
  // Sub-scales plus 32 have six bits: of run r the low four are a half of byte r % 8, the high two in byte 8 + r % 4.
  static inline void put_scales(const Block& block, int index, int lane, std::uint8_t* const parts[]) {
    __builtin_memcpy(parts[0] + 32 * static_cast<std::int64_t>(index) + 2 * lane, &block.scale, 2);
    for (int run = 0; run < 16; ++run) {
      const int low = (block.packed[run % 8] >> (4 * (run / 8))) & 0x0f;
      const int high = (block.packed[8 + run % 4] >> (2 * (run / 4))) & 3;
      parts[1][16 * (16 * static_cast<std::int64_t>(index) + run) + lane] =
          static_cast<std::uint8_t>((low | (high << 4)) - 32);
    }
  }
};
