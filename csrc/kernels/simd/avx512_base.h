// AVX-512 (f, bw, vl, dq): 16 lanes are one register. What each function means: simd/scalar.h.
// The dots follow in simd/avx512.h or simd/avx512vnni.h.
#if defined(__GNUC__) && !defined(__clang__)
// False alarms of its own _mm512_undefined_ps.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
constexpr int kFloatRows = 4, kFloatTokens = 4, kFloatRowsOfOne = 8, kAttentionRows = 6, kAttentionVectors = 4;
constexpr int kNearBytes = 4096, kFarBytes = 16384;

using f32x16 = __m512;
using i32x16 = __m512i;
using Bytes = __m512i;

// ---- float32, 16 lanes
static inline f32x16 splat(float value) { return _mm512_set1_ps(value); }
static inline f32x16 zero() { return _mm512_setzero_ps(); }
static inline f32x16 load(const float* p) { return _mm512_loadu_ps(p); }
static inline void store(float* p, f32x16 a) { _mm512_storeu_ps(p, a); }
static inline f32x16 add(f32x16 a, f32x16 b) { return _mm512_add_ps(a, b); }
static inline f32x16 sub(f32x16 a, f32x16 b) { return _mm512_sub_ps(a, b); }
static inline f32x16 mul(f32x16 a, f32x16 b) { return _mm512_mul_ps(a, b); }
static inline f32x16 div(f32x16 a, f32x16 b) { return _mm512_div_ps(a, b); }
static inline f32x16 fma(f32x16 a, f32x16 b, f32x16 c) { return _mm512_fmadd_ps(a, b, c); }
static inline f32x16 min(f32x16 a, f32x16 b) { return _mm512_min_ps(a, b); }
static inline f32x16 max(f32x16 a, f32x16 b) { return _mm512_max_ps(a, b); }
static inline f32x16 select_less(f32x16 a, f32x16 b, f32x16 x, f32x16 y) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}
static inline f32x16 load_f16(const std::uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
static inline f32x16 load_bf16(const std::uint16_t* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
static inline void store_f16(std::uint16_t* p, f32x16 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
static inline __m256 upper_half(__m512 a) { return _mm512_extractf32x8_ps(a, 1); }
static inline float sum_lanes(f32x16 a) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a), upper_half(a));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
static inline float max_lanes(f32x16 a) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a), upper_half(a));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

// ---- int32, 16 lanes
static inline i32x16 splat_int(std::int32_t value) { return _mm512_set1_epi32(value); }
static inline i32x16 load_int(const std::int32_t* p) { return _mm512_loadu_si512(p); }
static inline i32x16 bits(f32x16 a) { return _mm512_castps_si512(a); }
static inline f32x16 from_bits(i32x16 a) { return _mm512_castsi512_ps(a); }
static inline i32x16 add(i32x16 a, i32x16 b) { return _mm512_add_epi32(a, b); }
static inline i32x16 sub(i32x16 a, i32x16 b) { return _mm512_sub_epi32(a, b); }
static inline i32x16 mul(i32x16 a, i32x16 b) { return _mm512_mullo_epi32(a, b); }
static inline i32x16 max(i32x16 a, i32x16 b) { return _mm512_max_epi32(a, b); }
static inline i32x16 and_int(i32x16 a, std::int32_t mask) { return _mm512_and_si512(a, _mm512_set1_epi32(mask)); }
template <int kShift>
static inline i32x16 shift_left(i32x16 a) {
  return _mm512_slli_epi32(a, kShift);
}
template <int kShift>
static inline i32x16 shift_right(i32x16 a) {
  return _mm512_srai_epi32(a, kShift);
}
using IntPairs = __m512i;
static inline IntPairs pair(i32x16 first, i32x16 second) {
  return _mm512_or_si512(first, _mm512_slli_epi32(second, 16));
}
static inline i32x16 pair_dot(IntPairs pairs, std::uint32_t both) {
  return _mm512_madd_epi16(pairs, _mm512_set1_epi32(static_cast<std::int32_t>(both)));
}
static inline f32x16 to_float(i32x16 a) { return _mm512_cvtepi32_ps(a); }
static inline i32x16 load_u8(const std::uint8_t* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
static inline i32x16 load_s8(const std::uint8_t* p) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
static inline void store_low_bytes(std::int8_t* p, i32x16 a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a));
}
static inline std::int32_t sum_lanes(i32x16 a) {
  const __m256i eight = _mm256_add_epi32(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}
static inline std::int32_t max_lanes(i32x16 a) {
  const __m256i eight = _mm256_max_epi32(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
  const __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

// ---- bytes
static inline Bytes load_bytes(const std::uint8_t* p) { return _mm512_loadu_si512(p); }
static inline void store_bytes(std::uint8_t* p, Bytes a) { _mm512_storeu_si512(p, a); }
// Shifts whole 16-bit lanes; the mask drops what crossed over.
template <int kShift, int kMask>
static inline Bytes take(Bytes a) {
  static_assert(kShift >= 0 ? (kMask & ~(0xff >> kShift)) == 0 : (kMask & ((1 << -kShift) - 1)) == 0);
  if constexpr (kShift > 0) a = _mm512_srli_epi16(a, kShift);
  if constexpr (kShift < 0) a = _mm512_slli_epi16(a, -kShift);
  return _mm512_and_si512(a, _mm512_set1_epi8(static_cast<char>(kMask)));
}
static inline Bytes or_bytes(Bytes a, Bytes b) { return _mm512_or_si512(a, b); }
template <int kShift>
static inline Bytes shift_bits(Bytes a) {
  return kShift >= 0 ? _mm512_srli_epi16(a, kShift) : _mm512_slli_epi16(a, -kShift);
}
template <int kMask>
static inline Bytes select_bits(Bytes a, Bytes b) {
  return _mm512_ternarylogic_epi32(a, b, _mm512_set1_epi8(static_cast<char>(kMask)), 0xe4);
}
static inline Bytes add_bytes(Bytes a, Bytes b) { return _mm512_add_epi8(a, b); }
constexpr int kByteOffset = 0;
static inline Bytes whole_bytes(Bytes a) { return a; }
static inline Bytes thirds(Bytes a) {
  const __m512i second = _mm512_maskz_set1_epi8(_mm512_cmpgt_epu8_mask(a, _mm512_set1_epi8(85)), 1);
  return _mm512_mask_set1_epi8(second, _mm512_cmpgt_epu8_mask(a, _mm512_set1_epi8(static_cast<char>(170))), 2);
}
using Table = __m512i;
static inline Table load_table(const std::uint8_t* p) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
static inline Table rearrange(Table table, Table indices) { return _mm512_shuffle_epi8(table, indices); }
static inline Bytes lookup(Table table, Bytes indices) { return _mm512_shuffle_epi8(table, indices); }
template <int kShift>
static inline Bytes spread_bits(const std::uint8_t* rows) {
  const __m512i all = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(rows)));
  // Lane j takes rows 4 j to 4 j + 3, each four times.
  const __m512i first = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x01010101, 0x02020202, 0x03030303));
  const __m512i lane = _mm512_set_epi64(0x0c0c0c0c0c0c0c0c, 0x0c0c0c0c0c0c0c0c, 0x0808080808080808, 0x0808080808080808,
                                        0x0404040404040404, 0x0404040404040404, 0, 0);
  const __m512i spread = _mm512_shuffle_epi8(all, _mm512_add_epi8(first, lane));
  const __mmask64 is_set = _mm512_test_epi8_mask(spread, _mm512_set1_epi32(0x08040201 << kShift));
  return _mm512_maskz_mov_epi8(is_set, _mm512_set1_epi8(1));
}

// ---- 16-bit sums of table entries: first holds rows 0 to 7, second rows 8 to 15, of four lanes each
struct LutSum {
  __m512i first, second;
};
static inline LutSum no_lut_sum() { return {_mm512_setzero_si512(), _mm512_setzero_si512()}; }
static inline LutSum add_lookups(LutSum sum, const std::uint8_t* low, const std::uint8_t* high, Bytes indices) {
  const __m512i l = _mm512_shuffle_epi8(load_bytes(low), indices), h = _mm512_shuffle_epi8(load_bytes(high), indices);
  return {_mm512_add_epi16(sum.first, _mm512_unpacklo_epi8(l, h)),
          _mm512_add_epi16(sum.second, _mm512_unpackhi_epi8(l, h))};
}
// Entries of one byte; lane j of 16 bytes has the table tables + 16 j. add_rows adds one of each row.
static inline Bytes lookup_lanes(const std::uint8_t* tables, Bytes indices) {
  return _mm512_shuffle_epi8(load_bytes(tables), indices);
}
static inline LutSum add_rows(LutSum sum, Bytes rows) {
  return {_mm512_add_epi16(sum.first, _mm512_unpacklo_epi8(rows, _mm512_setzero_si512())),
          _mm512_add_epi16(sum.second, _mm512_unpackhi_epi8(rows, _mm512_setzero_si512()))};
}
static inline __m256i add_halves(__m512i a) {
  return _mm256_add_epi16(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
}
static inline i32x16 sum_lut(LutSum a) {
  const __m256i first = add_halves(a.first), second = add_halves(a.second);
  return _mm512_cvtepi16_epi32(
      _mm256_add_epi16(_mm256_permute2x128_si256(first, second, 0x20), _mm256_permute2x128_si256(first, second, 0x31)));
}

static inline __m512i broadcast_quad(const std::int8_t* quad) {
  std::int32_t four;
  __builtin_memcpy(&four, quad, 4);
  return _mm512_set1_epi32(four);
}
