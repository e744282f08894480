// AMX: the vectors of AVX-512 VNNI, tiles, and what folds sub-scales into the bytes of a tile.
#include "kernels/simd/avx512vnni.h"
//
#if EDGERT_EMULATE
#include "kernels/simd/tiles_scalar.h"
#else
#include "kernels/simd/tiles_amx.h"
#endif

static inline i32x16 load_ints(const std::int32_t* p) { return _mm512_loadu_si512(p); }
// Undoes signed_bytes.
static inline Bytes plain_bytes(Bytes a) { return signed_bytes(a); }
// kFactor * byte - kOffset.
template <int kFactor, int kOffset>
static inline Bytes rescale_bytes(Bytes a) {
  static_assert(kFactor == 1 || kFactor == 2);
  if constexpr (kFactor == 2) a = _mm512_add_epi8(a, a);
  if constexpr (kOffset != 0) a = _mm512_sub_epi8(a, _mm512_set1_epi8(static_cast<char>(kOffset)));
  return a;
}
// A number of 16 bits, signed or not, in both halves of its lane.
static inline i32x16 twice(i32x16 a) { return _mm512_mask_blend_epi16(0xaaaaaaaau, a, _mm512_slli_epi32(a, 16)); }

// The four unsigned bytes of a lane times its factor (of twice). REQUIRES: every product is below 256.
static inline Bytes scaled_bytes(Bytes a, i32x16 factor) { return _mm512_mullo_epi16(a, factor); }

// The four signed bytes of a lane times its factor (of twice), as 128 high + low with 0 <= low < 128.
struct SplitBytes {
  Bytes high, low;
};
static inline SplitBytes split_products(Bytes a, i32x16 factor) {
  constexpr __mmask64 kOdd = 0xaaaaaaaaaaaaaaaau;
  const __m512i even = _mm512_mullo_epi16(_mm512_srai_epi16(_mm512_slli_epi16(a, 8), 8), factor);
  const __m512i odd = _mm512_mullo_epi16(_mm512_srai_epi16(a, 8), factor);
  const __m512i high = _mm512_mask_blend_epi8(kOdd, _mm512_srli_epi16(even, 7), _mm512_slli_epi16(odd, 1));
  const __m512i low = _mm512_mask_blend_epi8(kOdd, even, _mm512_slli_epi16(odd, 8));
  return {high, _mm512_and_si512(low, _mm512_set1_epi8(0x7f))};
}

// Pairs of numbers of 16 bits: first * x + second * y in every lane, exact.
static inline i32x16 pair(i32x16 first, i32x16 second) { return _mm512_or_si512(first, _mm512_slli_epi32(second, 16)); }
static inline i32x16 pair_dot(i32x16 pairs, std::int32_t x, std::int32_t y) {
  const std::uint32_t both = (static_cast<std::uint32_t>(x) & 0xffff) | (static_cast<std::uint32_t>(y) << 16);
  return _mm512_madd_epi16(pairs, _mm512_set1_epi32(static_cast<std::int32_t>(both)));
}
