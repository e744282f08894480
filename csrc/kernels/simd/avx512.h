// AVX-512 without VNNI: dots through maddubs, widened in time as in simd/avx2.h.
#include "kernels/simd/avx512_base.h"

struct DotSum {
  __m512i pairs;
};
constexpr int kDotCapacity = 32767 / 254, kLargestCode = 255;
constexpr int kFieldDown[4] = {0, 0, 4, 4}, kPlaneDown[8] = {0, 0, 0, 0, 4, 4, 4, 4}, kNibbleDown = 4;

static inline DotSum no_sum() { return {_mm512_setzero_si512()}; }
static inline DotSum add(DotSum a, DotSum b) { return {_mm512_add_epi16(a.pairs, b.pairs)}; }
static inline DotSum dot(DotSum sum, Bytes codes, const std::int8_t* quad) {
  return {_mm512_add_epi16(sum.pairs, _mm512_maddubs_epi16(codes, broadcast_quad(quad)))};
}
template <int kShift>
static inline DotSum shift_right(DotSum a) {
  return {_mm512_srai_epi16(a.pairs, kShift)};
}
static inline i32x16 widen(DotSum a) { return _mm512_madd_epi16(a.pairs, _mm512_set1_epi16(1)); }

static inline Bytes signed_bytes(Bytes a) { return a; }
static inline Table signed_table(Table a) { return a; }
static inline i32x16 signed_start(std::int32_t) { return splat_int(0); }
static inline i32x16 signed_dot(i32x16 sum, Bytes codes, const std::int8_t* quad) {
  const __m512i x = broadcast_quad(quad);
  const __m512i with_sign = _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(codes), _mm512_setzero_si512(), x);
  const __m512i pairs = _mm512_maddubs_epi16(_mm512_abs_epi8(codes), with_sign);
  return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}
