// AVX2 with VNNI: vpdpbusd adds four products of an unsigned code and a signed activation in 32 bits.
#include "kernels/simd/avx2_base.h"

using DotSum = i32x16;
constexpr int kDotCapacity = 1 << 20, kLargestCode = 255;
constexpr int kFieldDown[4] = {0, 0, 0, 0}, kPlaneDown[8] = {0, 0, 0, 0, 4, 4, 4, 4}, kNibbleDown = 0;

// One instruction with two encodings: tests on a processor that has it in AVX-512 alone use that one.
static inline __m256i dot_half(__m256i sum, __m256i codes, __m256i x) {
#if EDGERT_EMULATE
  return _mm256_dpbusd_epi32(sum, codes, x);
#else
  return _mm256_dpbusd_avx_epi32(sum, codes, x);
#endif
}
static inline DotSum no_sum() { return splat_int(0); }
static inline DotSum dot(DotSum sum, Bytes codes, const std::int8_t* quad) {
  const __m256i x = broadcast_quad(quad);
  return {dot_half(sum.low, codes.low, x), dot_half(sum.high, codes.high, x)};
}
static inline i32x16 widen(DotSum a) { return a; }

// Signed codes plus 128 are unsigned; 128 times the sum of the activations is subtracted at the start.
static inline __m256i signed_table(__m256i a) { return _mm256_xor_si256(a, _mm256_set1_epi8(static_cast<char>(0x80))); }
static inline Bytes signed_bytes(Bytes a) { return {signed_table(a.low), signed_table(a.high)}; }
static inline i32x16 signed_start(std::int32_t sum) { return splat_int(-128 * sum); }
static inline i32x16 signed_dot(i32x16 sum, Bytes codes, const std::int8_t* quad) { return dot(sum, codes, quad); }
