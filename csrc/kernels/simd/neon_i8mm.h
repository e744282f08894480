// NEON with smmla: one instruction multiplies 2 rows x 8 columns of weights with 8 columns x 2 tokens.
#include "kernels/simd/neon_dotprod.h"

// 16 rows x 8 columns of codes, two rows in a register: registers 2i and 2i + 1 have rows 4i to 4i + 3.
struct RowPairs {
  int8x16_t q[8];
};
static inline RowPairs pair_rows(Bytes even_quad, Bytes odd_quad) {
  RowPairs r;
  for (int i = 0; i < 4; ++i) {
    const uint32x4_t even = vreinterpretq_u32_u8(even_quad.q[i]), odd = vreinterpretq_u32_u8(odd_quad.q[i]);
    r.q[2 * i] = vreinterpretq_s8_u32(vzip1q_u32(even, odd));
    r.q[2 * i + 1] = vreinterpretq_s8_u32(vzip2q_u32(even, odd));
  }
  return r;
}

// The sums of 16 rows with two tokens: in each register row 2i with the first and the second, then row 2i + 1.
struct PairSums {
  int32x4_t q[8];
};
static inline PairSums no_pair_sums() {
  PairSums r;
  for (int i = 0; i < 8; ++i) r.q[i] = vdupq_n_s32(0);
  return r;
}
// Eight columns of two tokens.
static inline int8x16_t load_token_pair(const std::int8_t* first, const std::int8_t* second) {
  return vcombine_s8(vld1_s8(first), vld1_s8(second));
}
static inline PairSums pair_dot(PairSums sums, const RowPairs& rows, int8x16_t tokens) {
  for (int i = 0; i < 8; ++i) sums.q[i] = vmmlaq_s32(sums.q[i], rows.q[i], tokens);
  return sums;
}
static inline i32x16 sums_of_first(const PairSums& a) {
  i32x16 r;
  for (int i = 0; i < 4; ++i) r.q[i] = vuzp1q_s32(a.q[2 * i], a.q[2 * i + 1]);
  return r;
}
static inline i32x16 sums_of_second(const PairSums& a) {
  i32x16 r;
  for (int i = 0; i < 4; ++i) r.q[i] = vuzp2q_s32(a.q[2 * i], a.q[2 * i + 1]);
  return r;
}
