// What the kinds of codes share: sums of activations, dots of unpacked quads, and quads of codes to be packed.

// Codes of a group as they are packed: 16 quads of 16 rows, the four codes of a quad in the bytes of a word.
using GroupCodes = std::uint32_t[kGroupColumns / 4][kStripRows];

// For how many groups a part holds its kPartBytes: one, unless the codes say so.
template <class Codes>
constexpr int part_groups([[maybe_unused]] int part) {
  if constexpr (requires { Codes::kPartGroups; }) {
    return Codes::kPartGroups[part];
  } else {
    return 1;
  }
}
// Bytes of a part of a strip.
template <class Codes>
constexpr std::int64_t strip_part_bytes(int part, std::int64_t groups) {
  const int every = part_groups<Codes>(part);
  return (groups + every - 1) / every * Codes::kPartBytes[part];
}

// Part of a group whose codes take kBits bits: vector z holds quads z * 8 / kBits and on, the first in the lowest bits.
template <int kBits>
static inline int get_bits(const std::uint8_t* part, int lane, int column) {
  constexpr int kPieces = 8 / kBits;
  const int quad = column / 4, byte = 4 * lane + column % 4;
  return (part[64 * (quad / kPieces) + byte] >> (kBits * (quad % kPieces))) & ((1 << kBits) - 1);
}
// Bits kShift to kShift + kBits - 1 of every code.
template <int kBits, int kShift>
static inline void put_bits(std::uint8_t* part, const GroupCodes& codes) {
  constexpr int kPieces = 8 / kBits;
  constexpr std::uint32_t kMask = ((1u << kBits) - 1) * 0x01010101u;
  for (int z = 0; z < 16 / kPieces; ++z) {
    for (int lane = 0; lane < kStripRows; ++lane) {
      std::uint32_t pieces = 0;
      for (int i = 0; i < kPieces; ++i) {
        pieces |= ((codes[kPieces * z + i][lane] >> kShift) & kMask) << (kBits * i);
      }
      __builtin_memcpy(part + 64 * z + 4 * lane, &pieces, 4);
    }
  }
}

// The exact sum of the activations that dot `d` of kDots in a group covers.
template <int kDots>
static inline std::int32_t activation_sum(const GroupSums& sums, int d) {
  if constexpr (kDots == 1) return sums.of64;
  if constexpr (kDots == 2) return sums.of32[d];
  if constexpr (kDots == 4) return sums.of16[d];
}

// What follows is always inline: gcc calls it in a format or two of each build, and sixteen registers go over the
// stack.

// Sum of kQuads vectors of codes times their quads, widened as often as kDotCapacity asks. Two sums at a time hide the
// latency of the dot.
template <int kMaxCode, int kQuads>
[[gnu::always_inline]] static inline i32x16 dot_quads(const Bytes* quads, const std::int8_t* x) {
  constexpr int kSafe = kDotCapacity / kMaxCode < kQuads / 2 ? kDotCapacity / kMaxCode : kQuads / 2;
  static_assert(kSafe >= 1 && kQuads % (2 * kSafe) == 0);
  i32x16 total = splat_int(0);
  EDGERT_UNROLL
  for (int first = 0; first < kQuads; first += 2 * kSafe) {
    DotSum a = no_sum(), b = no_sum();
    EDGERT_UNROLL
    for (int q = first; q < first + kSafe; ++q) {
      a = dot(a, quads[q], x + 4 * q);
      b = dot(b, quads[q + kSafe], x + 4 * (q + kSafe));
    }
    if constexpr (2 * kSafe * kMaxCode <= kDotCapacity) {
      total = add(total, widen(add(a, b)));
    } else {
      total = add(total, add(widen(a), widen(b)));
    }
  }
  return total;
}

template <int kQuads>
[[gnu::always_inline]] static inline i32x16 signed_dot_quads(const Bytes* quads, const std::int8_t* x,
                                                             std::int32_t activation_sum) {
  i32x16 a = signed_start(activation_sum), b = splat_int(0);
  EDGERT_UNROLL
  for (int q = 0; q < kQuads; q += 2) {
    a = signed_dot(a, quads[q], x + 4 * q);
    b = signed_dot(b, quads[q + 1], x + 4 * q + 4);
  }
  return add(a, b);
}

// All dots of a group that was unpacked, with one token.
template <class Codes, int kDots>
[[gnu::always_inline]] static inline void unpacked_dots(const Bytes (&quads)[16], const std::int8_t* x,
                                                        const GroupSums& sums, i32x16 (&out)[kDots]) {
  constexpr int kQuads = 16 / kDots;
  EDGERT_UNROLL
  for (int d = 0; d < kDots; ++d) {
    if constexpr (Codes::kIsSigned) {
      out[d] = signed_dot_quads<kQuads>(quads + d * kQuads, x + 4 * d * kQuads, activation_sum<kDots>(sums, d));
    } else {
      out[d] = dot_quads<Codes::kMaxCode, kQuads>(quads + d * kQuads, x + 4 * d * kQuads);
    }
  }
}
