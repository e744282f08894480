// Codes of 4 bits. Nibble vector z: quad 2z in the low, quad 2z + 1 in the high half of every byte.
struct NibbleCodes {
  static constexpr int kNumParts = 1, kMaxCode = 15;
  static constexpr int kPartBytes[1] = {512};
  static constexpr bool kIsSigned = false;

  static inline void unpack(const std::uint8_t* const parts[], std::int64_t g, Bytes (&quads)[16]) {
    EDGERT_UNROLL
    for (int z = 0; z < 8; ++z) {
      const Bytes v = load_bytes(parts[0] + 512 * g + 64 * z);
      quads[2 * z] = take<0, 0x0f>(v);
      quads[2 * z + 1] = take<4, 0x0f>(v);
    }
  }

  template <int kDots>
  static inline void dots(const std::uint8_t* const parts[], std::int64_t g, const std::int8_t* x, const GroupSums&,
                          i32x16 (&out)[kDots]) {
    constexpr int kVectors = 8 / kDots, kUp = 4 - kNibbleDown;
    static_assert(kVectors * 2 * 15 <= kDotCapacity);
    EDGERT_UNROLL
    for (int d = 0; d < kDots; ++d) {
      DotSum low = no_sum(), high = no_sum();
      EDGERT_UNROLL
      for (int z = d * kVectors; z < (d + 1) * kVectors; ++z) {
        const Bytes v = load_bytes(parts[0] + 512 * g + 64 * z);
        low = dot(low, take<0, 0x0f>(v), x + 8 * z);
        high = dot(high, take<kNibbleDown, 0x0f << kUp>(v), x + 8 * z + 4);
      }
      out[d] = widen(add(low, shift_right<kUp>(high)));
    }
  }

  static inline int get(const std::uint8_t* const parts[], std::int64_t g, int lane, int column) {
    return get_bits<4>(parts[0] + 512 * g, lane, column);
  }
  static inline void put(std::uint8_t* const parts[], std::int64_t g, const GroupCodes& codes) {
    put_bits<4, 0>(parts[0] + 512 * g, codes);
  }
};
