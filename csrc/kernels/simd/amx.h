// AMX: the vectors of AVX-512 VNNI, tiles, and what folds sub-scales into the bytes of a tile.
#include "kernels/simd/avx512vnni.h"
//
#if EDGERT_EMULATE
#include "kernels/simd/tiles_scalar.h"
#else
#include "kernels/simd/tiles_amx.h"
#endif

static inline i32x16 load_ints(const std::int32_t* p) { return _mm512_loadu_si512(p); }
static inline void store_ints(std::int32_t* p, i32x16 a) { _mm512_storeu_si512(p, a); }
static inline i32x16 to_bits(f32x16 a) { return _mm512_castps_si512(a); }
// table[the lower six bits of every byte].
static inline Bytes lookup_six(Bytes table, Bytes indices) { return _mm512_permutexvar_epi8(indices, table); }
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

// The nearest bfloat16 of 32 values, of two the even one; a NaN stays one.
static inline __m512i bf16_bits(f32x16 a) {
  const __m512i bits = _mm512_castps_si512(a);
  const __m512i is_odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i nearest = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), is_odd);
  const __mmask16 is_nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
  return _mm512_srli_epi32(_mm512_mask_or_epi32(nearest, is_nan, bits, _mm512_set1_epi32(0x400000)), 16);
}
static inline Bytes to_bf16(f32x16 first, f32x16 second) {
  const __m256i low = _mm512_cvtepi32_epi16(bf16_bits(first)), high = _mm512_cvtepi32_epi16(bf16_bits(second));
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

// Lane i of vector j becomes lane j of vector i: inside the four blocks of four lanes, then of the blocks.
static inline void transpose(i32x16 (&v)[16]) {
  i32x16 u[16];
  for (int i = 0; i < 16; i += 4) {
    const __m512i a = _mm512_unpacklo_epi32(v[i], v[i + 1]), b = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    const __m512i c = _mm512_unpacklo_epi32(v[i + 2], v[i + 3]), d = _mm512_unpackhi_epi32(v[i + 2], v[i + 3]);
    u[i] = _mm512_unpacklo_epi64(a, c);
    u[i + 1] = _mm512_unpackhi_epi64(a, c);
    u[i + 2] = _mm512_unpacklo_epi64(b, d);
    u[i + 3] = _mm512_unpackhi_epi64(b, d);
  }
  for (int i = 0; i < 4; ++i) {
    const __m512i a = _mm512_shuffle_i32x4(u[i], u[4 + i], 0x88), b = _mm512_shuffle_i32x4(u[i], u[4 + i], 0xdd);
    const __m512i c = _mm512_shuffle_i32x4(u[8 + i], u[12 + i], 0x88),
                  d = _mm512_shuffle_i32x4(u[8 + i], u[12 + i], 0xdd);
    v[i] = _mm512_shuffle_i32x4(a, c, 0x88);
    v[4 + i] = _mm512_shuffle_i32x4(b, d, 0x88);
    v[8 + i] = _mm512_shuffle_i32x4(a, c, 0xdd);
    v[12 + i] = _mm512_shuffle_i32x4(b, d, 0xdd);
  }
}
