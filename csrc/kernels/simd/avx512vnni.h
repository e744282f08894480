// AVX-512 VNNI: vpdpbusd adds four products of an unsigned code and a signed activation in 32 bits.
#include "kernels/simd/avx512_base.h"

using DotSum = i32x16;
constexpr int kDotCapacity = 1 << 20, kLargestCode = 255;
// Every two-bit piece of a field is multiplied where it stands; planes in two steps, which needs fewer sums.
constexpr int kFieldDown[4] = {0, 0, 0, 0}, kPlaneDown[8] = {0, 0, 0, 0, 4, 4, 4, 4}, kNibbleDown = 0;

static inline DotSum no_sum() { return _mm512_setzero_si512(); }
static inline DotSum dot(DotSum sum, Bytes codes, const std::int8_t* quad) {
  return _mm512_dpbusd_epi32(sum, codes, broadcast_quad(quad));
}
static inline i32x16 widen(DotSum a) { return a; }

// Signed codes plus 128 are unsigned; 128 times the sum of the activations is subtracted at the start.
static inline Bytes signed_bytes(Bytes a) { return _mm512_xor_si512(a, _mm512_set1_epi8(static_cast<char>(0x80))); }
static inline Table signed_table(Table a) { return signed_bytes(a); }
static inline i32x16 signed_start(std::int32_t sum) { return _mm512_set1_epi32(-128 * sum); }
static inline i32x16 signed_dot(i32x16 sum, Bytes codes, const std::int8_t* quad) { return dot(sum, codes, quad); }
