// Codes of 6 bits: the low four in a nibble part, the high two in a field part.
struct NibbleFieldCodes {
  static constexpr int kNumParts = 2, kMaxCode = 63;
  static constexpr int kPartBytes[2] = {512, 256};
  static constexpr bool kIsSigned = false;

  static inline void unpack(const std::uint8_t* const parts[], std::int64_t g, Bytes (&quads)[16]) {
    EDGERT_UNROLL
    for (int z = 0; z < 4; ++z) unpack_quads(parts[0] + 512 * g + 128 * z, parts[1] + 256 * g + 64 * z, quads + 4 * z);
  }

  template <int kDots>
  static inline void dots(const std::uint8_t* const parts[], std::int64_t g, const std::int8_t* x, const GroupSums&,
                          i32x16 (&out)[kDots]) {
    static_assert(kDots == 4);
    EDGERT_UNROLL
    for (int z = 0; z < 4; ++z) {
      Bytes quads[4];
      unpack_quads(parts[0] + 512 * g + 128 * z, parts[1] + 256 * g + 64 * z, quads);
      out[z] = dot_quads<kMaxCode, 4>(quads, x + 16 * z);
    }
  }

  static inline int get(const std::uint8_t* const parts[], std::int64_t g, int lane, int column) {
    return get_bits<4>(parts[0] + 512 * g, lane, column) | (get_bits<2>(parts[1] + 256 * g, lane, column) << 4);
  }
  static inline void put(std::uint8_t* const parts[], std::int64_t g, const GroupCodes& codes) {
    put_bits<4, 0>(parts[0] + 512 * g, codes);
    put_bits<2, 4>(parts[1] + 256 * g, codes);
  }

 private:
  // Four quads: two nibble vectors and one field vector.
  static inline void unpack_quads(const std::uint8_t* nibbles, const std::uint8_t* fields, Bytes* quads) {
    const Bytes a = load_bytes(nibbles), b = load_bytes(nibbles + 64), field = load_bytes(fields);
    quads[0] = or_bytes(take<0, 0x0f>(a), take<-4, 0x30>(field));
    quads[1] = or_bytes(take<4, 0x0f>(a), take<-2, 0x30>(field));
    quads[2] = or_bytes(take<0, 0x0f>(b), take<0, 0x30>(field));
    quads[3] = or_bytes(take<4, 0x0f>(b), take<2, 0x30>(field));
  }
};
