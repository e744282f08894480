// Signed codes of 8 bits. Byte vector q: quad q.
struct ByteCodes {
  static constexpr int kNumParts = 1, kMaxCode = 128, kCodeBits = 8;
  static constexpr int kPartBytes[1] = {1024};
  static constexpr bool kIsSigned = true;

  static inline void unpack(const std::uint8_t* const parts[], std::int64_t g, Bytes (&quads)[16]) {
    EDGERT_UNROLL
    for (int q = 0; q < 16; ++q) quads[q] = signed_bytes(load_bytes(parts[0] + 1024 * g + 64 * q));
  }

  // What unpack makes of codes of four columns that lie as bytes.
  static inline Bytes quad(const std::uint8_t* const[], Bytes codes) { return signed_bytes(codes); }

  template <int kDots>
  static inline void dots(const std::uint8_t* const parts[], std::int64_t g, const std::int8_t* x,
                          const GroupSums& sums, i32x16 (&out)[kDots]) {
    constexpr int kQuads = 16 / kDots;
    const std::uint8_t* part = parts[0] + 1024 * g;
    EDGERT_UNROLL
    for (int d = 0; d < kDots; ++d) {
      i32x16 even = signed_start(activation_sum<kDots>(sums, d)), odd = splat_int(0);
      EDGERT_UNROLL
      for (int q = d * kQuads; q < (d + 1) * kQuads; q += 2) {
        even = signed_dot(even, signed_bytes(load_bytes(part + 64 * q)), x + 4 * q);
        odd = signed_dot(odd, signed_bytes(load_bytes(part + 64 * q + 64)), x + 4 * q + 4);
      }
      out[d] = add(even, odd);
    }
  }

  static inline int get(const std::uint8_t* const parts[], std::int64_t g, int lane, int column) {
    return static_cast<std::int8_t>(get_bits<8>(parts[0] + 1024 * g, lane, column));
  }
  static inline void put(std::uint8_t* const parts[], std::int64_t g, const GroupCodes& codes) {
    put_bits<8, 0>(parts[0] + 1024 * g, codes);
  }
};
