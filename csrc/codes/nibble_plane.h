// Codes of 5 bits: the upper four in a nibble part, the last in a plane.
struct NibblePlaneCodes {
  static constexpr int kNumParts = 2, kMaxCode = 31;
  static constexpr int kPartBytes[2] = {512, 128};
  static constexpr bool kIsSigned = false;

  static inline void unpack(const std::uint8_t* const parts[], std::int64_t g, Bytes (&quads)[16]) {
    EDGERT_UNROLL
    for (int z = 0; z < 8; ++z) {
      const Bytes v = load_bytes(parts[0] + 512 * g + 64 * z);
      quads[2 * z] = take<-1, 0x1e>(v);
      quads[2 * z + 1] = take<3, 0x1e>(v);
    }
    append_plane(load_bytes(parts[1] + 128 * g), quads);
    append_plane(load_bytes(parts[1] + 128 * g + 64), quads + 8);
  }

  // Nibbles and planes are multiplied where they stand; a plane vector covers the 32 columns of a dot.
  template <int kDots>
  static inline void dots(const std::uint8_t* const parts[], std::int64_t g, const std::int8_t* x,
                          const GroupSums& sums, i32x16 (&out)[kDots]) {
    static_assert(kDots == 2);
    NibbleCodes::dots(parts, g, x, sums, out);
    EDGERT_UNROLL
    for (int d = 0; d < kDots; ++d) {
      out[d] = add(shift_left<1>(out[d]), widen(plane_dot<1>(parts[1] + 128 * g + 64 * d, x + 32 * d)));
    }
  }

  static inline int get(const std::uint8_t* const parts[], std::int64_t g, int lane, int column) {
    return 2 * get_bits<4>(parts[0] + 512 * g, lane, column) + get_bits<1>(parts[1] + 128 * g, lane, column);
  }
  static inline void put(std::uint8_t* const parts[], std::int64_t g, const GroupCodes& codes) {
    put_bits<4, 1>(parts[0] + 512 * g, codes);
    put_bits<1, 0>(parts[1] + 128 * g, codes);
  }
};
