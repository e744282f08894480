// ggml q4_k: 256 columns in 8 runs of 32; 6-bit scales and minima of the runs are squeezed into 12 bytes.
struct Q4_K {
  static constexpr Format kFormat = Format::q4_k;
  using Codes = NibbleCodes;
  using Scales = SuperMinScales;

  static constexpr int kBlockColumns = 256;
  struct [[gnu::packed]] Block {
    std::uint16_t scale, minimum;
    std::uint8_t packed[12];
    std::uint8_t nibbles[128];  // 64 columns in 32 bytes: the low nibbles are the first 32
  };
  static_assert(sizeof(Block) == 144);

  static inline void decode(const Block& block, int first_column, std::uint8_t* codes) {
    const std::uint8_t* nibbles = block.nibbles + first_column / 2;
    for (int i = 0; i < 32; i += 16) {
      put_codes(codes + i, take_bits(nibbles + i, 0, 0x0f));
      put_codes(codes + 32 + i, take_bits(nibbles + i, 4, 0x0f));
    }
  }
  static inline void put_scales(const Block& block, int index, int lane, std::uint8_t* const parts[]) {
    Scales::put(parts, index, lane, block.scale, block.minimum, block.packed);
  }
};
