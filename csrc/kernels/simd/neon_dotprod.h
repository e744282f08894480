// NEON with sdot: four products of signed bytes are added in 32 bits.
#include "kernels/simd/neon_base.h"

using DotSum = i32x16;
constexpr int kDotCapacity = 1 << 20, kLargestCode = 127;
// The last two bits of a field are shifted down, to stay below 128.
constexpr int kFieldDown[4] = {0, 0, 0, 6}, kPlaneDown[8] = {0, 0, 0, 0, 4, 4, 4, 4}, kNibbleDown = 4;

static inline DotSum no_sum() { return splat_int(0); }
static inline DotSum dot(DotSum sum, Bytes codes, const std::int8_t* quad) {
  const int8x16_t x = broadcast_quad(quad);
  for (int i = 0; i < 4; ++i) sum.q[i] = vdotq_s32(sum.q[i], vreinterpretq_s8_u8(codes.q[i]), x);
  return sum;
}
static inline i32x16 widen(DotSum a) { return a; }
static inline i32x16 signed_dot(i32x16 sum, Bytes codes, const std::int8_t* quad) { return dot(sum, codes, quad); }
#undef EDGERT_EACH
