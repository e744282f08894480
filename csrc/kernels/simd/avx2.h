// AVX2 without VNNI: maddubs adds two products in 16 bits, 127 * 2 * code at most; sums are widened in time.
#include "kernels/simd/avx2_base.h"

struct DotSum {
  __m256i low, high;
};
constexpr int kDotCapacity = 32767 / 254, kLargestCode = 255;
constexpr int kFieldDown[4] = {0, 0, 4, 4}, kPlaneDown[8] = {0, 0, 0, 0, 4, 4, 4, 4}, kNibbleDown = 4;

static inline DotSum no_sum() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
static inline DotSum add(DotSum a, DotSum b) {
  return {_mm256_add_epi16(a.low, b.low), _mm256_add_epi16(a.high, b.high)};
}
static inline DotSum dot(DotSum sum, Bytes codes, const std::int8_t* quad) {
  const __m256i x = broadcast_quad(quad);
  return {_mm256_add_epi16(sum.low, _mm256_maddubs_epi16(codes.low, x)),
          _mm256_add_epi16(sum.high, _mm256_maddubs_epi16(codes.high, x))};
}
template <int kShift>
static inline DotSum shift_right(DotSum a) {
  return {_mm256_srai_epi16(a.low, kShift), _mm256_srai_epi16(a.high, kShift)};
}
static inline i32x16 widen(DotSum a) {
  const __m256i one = _mm256_set1_epi16(1);
  return {_mm256_madd_epi16(a.low, one), _mm256_madd_epi16(a.high, one)};
}

// |w| * (x with the sign of w): |-128| is 128 as an unsigned byte, and x is never -128.
static inline Bytes signed_bytes(Bytes a) { return a; }
static inline Table signed_table(Table a) { return a; }
static inline i32x16 signed_start(std::int32_t) { return splat_int(0); }
static inline __m256i signed_products(__m256i w, __m256i x) {
  return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)), _mm256_set1_epi16(1));
}
static inline i32x16 signed_dot(i32x16 sum, Bytes codes, const std::int8_t* quad) {
  const __m256i x = broadcast_quad(quad);
  return {_mm256_add_epi32(sum.low, signed_products(codes.low, x)),
          _mm256_add_epi32(sum.high, signed_products(codes.high, x))};
}
