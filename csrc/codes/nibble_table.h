// Codes of 4 bits that stand for the 16 values of a fixed table. They lie as in codes/nibble.h; unpack, dots and get
// hand on the values.

// ggml's values of iq4_nl and iq4_xs: -127, -104, -83, -65, -49, -35, -22, -10, then those above zero.
alignas(16) static constexpr std::uint8_t kUnevenValues[16] = {129, 152, 173, 191, 207, 221, 234, 246,
                                                               1,   13,  25,  38,  53,  69,  89,  113};
// Twice the values of mxfp4 (0, 0.5, 1, 1.5, 2, 3, 4, 6, then the same below zero) plus 12: unsigned and small, so that
// sums of many fit 16 bits.
alignas(16) static constexpr std::uint8_t kMicroValues[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                                              12, 11, 10, 9,  8,  6,  4,  0};

template <const std::uint8_t (&kValues)[16], int kLargest, bool kAreSigned>
struct NibbleTableCodes {
  static constexpr int kNumParts = 1, kMaxCode = kLargest;
  static constexpr int kPartBytes[1] = {512};
  static constexpr bool kIsSigned = kAreSigned;

  static inline void unpack(const std::uint8_t* const parts[], std::int64_t g, Bytes (&quads)[16]) {
    look_up_half(parts, g, 0, quads);
    look_up_half(parts, g, 1, quads + 8);
  }

  template <int kDots>
  static inline void dots(const std::uint8_t* const parts[], std::int64_t g, const std::int8_t* x,
                          const GroupSums& sums, i32x16 (&out)[kDots]) {
    static_assert(kDots == 2);
    EDGERT_UNROLL
    for (int half = 0; half < 2; ++half) {
      Bytes quads[8];
      look_up_half(parts, g, half, quads);
      if constexpr (kIsSigned) {
        out[half] = signed_dot_quads<8>(quads, x + 32 * half, sums.of32[half]);
      } else {
        out[half] = dot_quads<kMaxCode, 8>(quads, x + 32 * half);
      }
    }
  }

  static inline int get(const std::uint8_t* const parts[], std::int64_t g, int lane, int column) {
    const std::uint8_t value = kValues[NibbleCodes::get(parts, g, lane, column)];
    return kIsSigned ? static_cast<std::int8_t>(value) : value;
  }
  static inline void put(std::uint8_t* const parts[], std::int64_t g, const GroupCodes& codes) {
    NibbleCodes::put(parts, g, codes);
  }

 private:
  static inline void look_up_half(const std::uint8_t* const parts[], std::int64_t g, int half, Bytes* quads) {
    const Table table = kIsSigned ? signed_table(load_table(kValues)) : load_table(kValues);
    EDGERT_UNROLL
    for (int z = 0; z < 4; ++z) {
      const Bytes v = load_bytes(parts[0] + 512 * g + 256 * half + 64 * z);
      quads[2 * z] = lookup(table, take<0, 0x0f>(v));
      quads[2 * z + 1] = lookup(table, take<4, 0x0f>(v));
    }
  }
};

using UnevenCodes = NibbleTableCodes<kUnevenValues, 128, true>;
using MicroCodes = NibbleTableCodes<kMicroValues, 24, false>;
