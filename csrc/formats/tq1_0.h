// ggml tq1_0: 256 ternary columns, five in a byte, with one f16 scale. value = scale * (code - 1)
struct TQ1_0 {
  static constexpr Format kFormat = Format::tq1_0;
  using Codes = TritCodes;
  using Scales = FourGroupScales<HalfFloats, 1>;

  static constexpr int kBlockColumns = 256;
  struct [[gnu::packed]] Block {
    std::uint8_t fives[48];  // digit d of the first 32 bytes: columns 32d and on; of the other 16: 160 + 16d and on
    std::uint8_t fours[4];   // digit d: columns 240 + 4d and on
    std::uint16_t scale;
  };
  static_assert(sizeof(Block) == 54);

  static inline void decode(const Block& block, int first_column, std::uint8_t* codes) {
    for (int i = 0; i < kGroupColumns;) {
      const int column = first_column + i;
      if (column < 160) {
        i += decode_run<32>(block.fives, column / 32, codes + i);
      } else if (column < 240) {
        i += decode_run<16>(block.fives + 32, (column - 160) / 16, codes + i);
      } else {
        i += decode_run<4>(block.fours, (column - 240) / 4, codes + i);
      }
    }
  }
  static inline void put_scales(const Block& block, int index, int lane, std::uint8_t* const parts[]) {
    Scales::put(parts, index, lane, block.scale);
  }

 private:
  template <int kColumns>
  static inline int decode_run(const std::uint8_t* bytes, int digit, std::uint8_t* codes) {
    for (int i = 0; i < kColumns; ++i) codes[i] = kTrits.digits[digit][bytes[i]];
    return kColumns;
  }
};
