// ggml tq1_0: 256 ternary columns, five in a byte, with one f16 scale. value = scale * (code - 1)
struct TQ1_0 {
  static constexpr Format kFormat = Format::tq1_0;
  using Codes = TritCodes;
  using Scales = FourGroupScales<1>;

  static constexpr int kBlockColumns = 256;
  struct Block {
    std::uint8_t fives[48];  // digit d of the first 32 bytes: columns 32d and on; of the other 16: 160 + 16d and on
    std::uint8_t fours[4];   // digit d: columns 240 + 4d and on
    std::uint16_t scale;
  };
  static_assert(sizeof(Block) == 54);

  static inline void decode(const Block& block, int first_column, std::uint8_t* codes) {
    for (int i = 0; i < kGroupColumns; ++i) codes[i] = code_of(block, first_column + i);
  }
  static inline void put_scales(const Block& block, int index, int lane, std::uint8_t* const parts[]) {
    Scales::put(parts, index, lane, block.scale);
  }

 private:
  static inline std::uint8_t code_of(const Block& block, int column) {
    if (column < 160) return get_trit(block.fives[column % 32], column / 32);
    if (column < 240) return get_trit(block.fives[32 + column % 16], (column - 160) / 16);
    return get_trit(block.fours[column % 4], (column - 240) / 4);
  }
};
