// What the kinds of codes share: sums of activations, and dots of unpacked quads.

// The exact sum of the activations that dot `d` of kDots in a group covers.
template <int kDots>
static inline std::int32_t activation_sum(const GroupSums& sums, int d) {
  if constexpr (kDots == 1) return sums.of64;
  if constexpr (kDots == 2) return sums.of32[d];
  if constexpr (kDots == 4) return sums.of16[d];
}

// Sum of kQuads vectors of codes times their quads, widened as often as kDotCapacity asks.
template <int kMaxCode, int kQuads>
static inline i32x16 dot_quads(const Bytes* quads, const std::int8_t* x) {
  constexpr int kSafe = kDotCapacity / kMaxCode < kQuads ? kDotCapacity / kMaxCode : kQuads;
  static_assert(kSafe >= 1 && kQuads % kSafe == 0);
  i32x16 total = splat_int(0);
  for (int first = 0; first < kQuads; first += kSafe) {
    DotSum sum = no_sum();
    for (int q = first; q < first + kSafe; ++q) sum = dot(sum, quads[q], x + 4 * q);
    total = first == 0 ? widen(sum) : add(total, widen(sum));
  }
  return total;
}
