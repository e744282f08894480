// Codes of 1 bit, four columns of a row side by side: an index into a table of sums of the four activations
// (kernels/generic/lut.inl.h). Vector z, lane j of 16 bytes, byte r: row r; low half: quad 8z + j, high half: quad
// 8z + 4 + j.
struct QuadBits {
  static constexpr int kNumParts = 1, kMaxCode = 1;
  static constexpr int kPartBytes[1] = {128};
  static constexpr bool kIsSigned = false;

  static inline void unpack(const std::uint8_t* const parts[], std::int64_t g, Bytes (&quads)[16]) {
    EDGERT_UNROLL
    for (int z = 0; z < 2; ++z) {
      EDGERT_UNROLL
      for (int j = 0; j < 4; ++j) {
        const std::uint8_t* rows = parts[0] + 128 * g + 64 * z + 16 * j;
        quads[8 * z + j] = spread_bits<0>(rows);
        quads[8 * z + 4 + j] = spread_bits<4>(rows);
      }
    }
  }

  template <int kDots>
  static inline void dots(const std::uint8_t* const parts[], std::int64_t g, const std::int8_t* x, const GroupSums&,
                          i32x16 (&out)[kDots]) {
    static_assert(kDots == 1);
    Bytes quads[16];
    unpack(parts, g, quads);
    out[0] = dot_quads<kMaxCode, 16>(quads, x);
  }

  // The sum of the activations whose bit is set, for 64 columns. Rounded: within 56 of it, half of the 16 remainders of
  // up to 7 that the eighths leave out.
  template <bool kRounded>
  static inline i32x16 lut_dot(const std::uint8_t* part, std::int64_t g, const LutTables* tables) {
    LutSum sum = no_lut_sum();
    EDGERT_UNROLL
    for (int z = 0; z < 2; ++z) {
      const Bytes v = load_bytes(part + 128 * g + 64 * z), first = take<0, 0x0f>(v), second = take<4, 0x0f>(v);
      if constexpr (kRounded) {
        const std::uint8_t* eighths = tables[g].eighths + 128 * z;
        sum = add_rows(sum, add_bytes(lookup_lanes(eighths, first), lookup_lanes(eighths + 64, second)));
      } else {
        sum = add_lookups(sum, tables[g].low + 128 * z, tables[g].high + 128 * z, first);
        sum = add_lookups(sum, tables[g].low + 128 * z + 64, tables[g].high + 128 * z + 64, second);
      }
    }
    if constexpr (!kRounded) return sum_lut(sum);
    return add(shift_left<3>(sum_lut(sum)), splat_int(56 - 8 * 64 * 16));
  }

  static inline int get(const std::uint8_t* const parts[], std::int64_t g, int lane, int column) {
    const int quad = column / 4;
    const std::uint8_t both = parts[0][128 * g + 64 * (quad / 8) + 16 * (quad % 4) + lane];
    return (both >> (4 * (quad / 4 % 2) + column % 4)) & 1;
  }
};
