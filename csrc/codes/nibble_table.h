// Codes of 4 bits that stand for the 16 values of a fixed table. They lie as in codes/nibble.h; unpack, dots and get
// hand on the values.

// ggml's values of iq4_nl and iq4_xs, and their halves: value = 16 high + low - 128.
alignas(16) static constexpr std::uint8_t kUnevenValues[16] = {129, 152, 173, 191, 207, 221, 234, 246,
                                                               1,   13,  25,  38,  53,  69,  89,  113};
alignas(16) static constexpr std::uint8_t kUnevenHigh[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 9, 10, 11, 12, 13, 15};
alignas(16) static constexpr std::uint8_t kUnevenLow[16] = {1, 8, 13, 15, 15, 13, 10, 6, 1, 13, 9, 6, 5, 5, 9, 1};
// Twice the values of mxfp4 (0, 0.5, 1, 1.5, 2, 3, 4, 6, then the same below zero) plus 12.
alignas(16) static constexpr std::uint8_t kMicroValues[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                                              12, 11, 10, 9,  8,  6,  4,  0};

// kVectors nibble vectors as the values of their quads.
template <int kVectors>
static inline void look_up_nibbles(Table table, const std::uint8_t* part, Bytes* quads) {
  EDGERT_UNROLL
  for (int z = 0; z < kVectors; ++z) {
    const Bytes v = load_bytes(part + 64 * z);
    quads[2 * z] = lookup(table, take<0, 0x0f>(v));
    quads[2 * z + 1] = lookup(table, take<4, 0x0f>(v));
  }
}

// iq4: signed values up to 127.
struct UnevenCodes {
  static constexpr int kNumParts = 1, kMaxCode = 128;
  static constexpr int kPartBytes[1] = {512};
  static constexpr bool kIsSigned = true;

  static inline void unpack(const std::uint8_t* const parts[], std::int64_t g, Bytes (&quads)[16]) {
    const Table table = signed_table(load_table(kUnevenValues));
    look_up_nibbles<8>(table, parts[0] + 512 * g, quads);
  }

  template <int kDots>
  static inline void dots(const std::uint8_t* const parts[], std::int64_t g, const std::int8_t* x,
                          const GroupSums& sums, i32x16 (&out)[kDots]) {
    static_assert(kDots == 2);
    EDGERT_UNROLL
    for (int d = 0; d < kDots; ++d) {
      const std::uint8_t* part = parts[0] + 512 * g + 256 * d;
      if constexpr (kDotCapacity >= 1 << 20) {
        const Table table = signed_table(load_table(kUnevenValues));
        Bytes quads[8];
        look_up_nibbles<4>(table, part, quads);
        out[d] = signed_dot_quads<8>(quads, x + 32 * d, sums.of32[d]);
      } else {
        out[d] = sub(halves_dot(part, x + 32 * d), splat_int(128 * sums.of32[d]));
      }
    }
  }

  static inline int get(const std::uint8_t* const parts[], std::int64_t g, int lane, int column) {
    return static_cast<std::int8_t>(kUnevenValues[get_bits<4>(parts[0] + 512 * g, lane, column)]);
  }
  static inline void put(std::uint8_t* const parts[], std::int64_t g, const GroupCodes& codes) {
    NibbleCodes::put(parts, g, codes);
  }

 private:
  // Where a signed dot is widened at once, two dots of halves are cheaper: they are widened after 32 columns.
  static inline i32x16 halves_dot(const std::uint8_t* part, const std::int8_t* x) {
    const Table high = load_table(kUnevenHigh), low = load_table(kUnevenLow);
    static_assert(8 * 15 <= kDotCapacity);
    DotSum high_sum = no_sum(), low_sum = no_sum();
    EDGERT_UNROLL
    for (int z = 0; z < 4; ++z) {
      const Bytes v = load_bytes(part + 64 * z);
      const Bytes even = take<0, 0x0f>(v), odd = take<4, 0x0f>(v);
      high_sum = dot(dot(high_sum, lookup(high, even), x + 8 * z), lookup(high, odd), x + 8 * z + 4);
      low_sum = dot(dot(low_sum, lookup(low, even), x + 8 * z), lookup(low, odd), x + 8 * z + 4);
    }
    return add(shift_left<4>(widen(high_sum)), widen(low_sum));
  }
};

// mxfp4: values moved up by 12, so that they are unsigned and small.
struct MicroCodes {
  static constexpr int kNumParts = 1, kMaxCode = 24;
  static constexpr int kPartBytes[1] = {512};
  static constexpr bool kIsSigned = false;

  static inline void unpack(const std::uint8_t* const parts[], std::int64_t g, Bytes (&quads)[16]) {
    look_up_nibbles<8>(load_table(kMicroValues), parts[0] + 512 * g, quads);
  }

  template <int kDots>
  static inline void dots(const std::uint8_t* const parts[], std::int64_t g, const std::int8_t* x, const GroupSums&,
                          i32x16 (&out)[kDots]) {
    static_assert(kDots == 2);
    EDGERT_UNROLL
    for (int d = 0; d < kDots; ++d) {
      Bytes quads[8];
      look_up_nibbles<4>(load_table(kMicroValues), parts[0] + 512 * g + 256 * d, quads);
      out[d] = dot_quads<kMaxCode, 8>(quads, x + 32 * d);
    }
  }

  static inline int get(const std::uint8_t* const parts[], std::int64_t g, int lane, int column) {
    return kMicroValues[get_bits<4>(parts[0] + 512 * g, lane, column)];
  }
  static inline void put(std::uint8_t* const parts[], std::int64_t g, const GroupCodes& codes) {
    NibbleCodes::put(parts, g, codes);
  }
};
