// Codes of 1 bit. Plane vector z, bit t: quad 8z + t.
struct PlaneCodes {
  static constexpr int kNumParts = 1, kMaxCode = 1;
  static constexpr int kPartBytes[1] = {128};
  static constexpr bool kIsSigned = false;

  static inline void unpack(const std::uint8_t* const parts[], std::int64_t g, Bytes (&quads)[16]) {
    EDGERT_UNROLL
    for (int z = 0; z < 2; ++z) unpack_plane(load_bytes(parts[0] + 128 * g + 64 * z), quads + 8 * z);
  }

  template <int kDots>
  static inline void dots(const std::uint8_t* const parts[], std::int64_t g, const std::int8_t* x, const GroupSums&,
                          i32x16 (&out)[kDots]) {
    static_assert(kDots == 1);
    out[0] = widen(plane_dot<2>(parts[0] + 128 * g, x));
  }

  static inline int get(const std::uint8_t* const parts[], std::int64_t g, int lane, int column) {
    return get_bits<1>(parts[0] + 128 * g, lane, column);
  }
};
