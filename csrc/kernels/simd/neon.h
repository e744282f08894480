// NEON without sdot: products of bytes add up in 16 bits, pair by pair of columns.
#include "kernels/simd/neon_base.h"

// low: rows 0 and 1 of each register's four rows, high: rows 2 and 3; 4 columns each.
struct DotSum {
  int16x8_t low[4], high[4];
};
constexpr int kDotCapacity = 32767 / 127, kLargestCode = 127;
constexpr int kFieldDown[4] = {0, 0, 0, 6}, kPlaneDown[8] = {0, 0, 0, 0, 4, 4, 4, 4}, kNibbleDown = 4;

static inline DotSum no_sum() {
  DotSum r;
  for (int i = 0; i < 4; ++i) r.low[i] = r.high[i] = vdupq_n_s16(0);
  return r;
}
static inline DotSum add(DotSum a, DotSum b) {
  for (int i = 0; i < 4; ++i) {
    a.low[i] = vaddq_s16(a.low[i], b.low[i]);
    a.high[i] = vaddq_s16(a.high[i], b.high[i]);
  }
  return a;
}
static inline DotSum dot(DotSum sum, Bytes codes, const std::int8_t* quad) {
  const int8x16_t x = broadcast_quad(quad);
  for (int i = 0; i < 4; ++i) {
    const int8x16_t w = vreinterpretq_s8_u8(codes.q[i]);
    sum.low[i] = vmlal_s8(sum.low[i], vget_low_s8(w), vget_low_s8(x));
    sum.high[i] = vmlal_high_s8(sum.high[i], w, x);
  }
  return sum;
}
template <int kShift>
static inline DotSum shift_right(DotSum a) {
  if constexpr (kShift > 0) {
    for (int i = 0; i < 4; ++i) {
      a.low[i] = vshrq_n_s16(a.low[i], kShift);
      a.high[i] = vshrq_n_s16(a.high[i], kShift);
    }
  }
  return a;
}
static inline i32x16 widen(DotSum a) { EDGERT_EACH(i32x16, vpaddq_s32(vpaddlq_s16(a.low[i]), vpaddlq_s16(a.high[i]))); }

static inline i32x16 signed_dot(i32x16 sum, Bytes codes, const std::int8_t* quad) {
  const int8x16_t x = broadcast_quad(quad);
  for (int i = 0; i < 4; ++i) {
    const int8x16_t w = vreinterpretq_s8_u8(codes.q[i]);
    const int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(x)), high = vmull_high_s8(w, x);
    sum.q[i] = vaddq_s32(sum.q[i], vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
  }
  return sum;
}
#undef EDGERT_EACH
