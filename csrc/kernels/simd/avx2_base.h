// AVX2 with FMA and F16C: 16 lanes are two registers. What each function means: simd/scalar.h.
// The dots follow in simd/avx2.h or simd/avxvnni.h.
constexpr int kFloatRows = 2, kFloatTokens = 2, kFloatRowsOfOne = 4, kAttentionRows = 2, kAttentionVectors = 2;
constexpr int kNearBytes = 4096, kFarBytes = 16384;

struct f32x16 {
  __m256 low, high;
};
struct i32x16 {
  __m256i low, high;
};
struct Bytes {
  __m256i low, high;
};

// ---- float32, 16 lanes
static inline f32x16 splat(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
static inline f32x16 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
static inline f32x16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
static inline void store(float* p, f32x16 a) {
  _mm256_storeu_ps(p, a.low);
  _mm256_storeu_ps(p + 8, a.high);
}
static inline f32x16 add(f32x16 a, f32x16 b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
static inline f32x16 sub(f32x16 a, f32x16 b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
static inline f32x16 mul(f32x16 a, f32x16 b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
static inline f32x16 div(f32x16 a, f32x16 b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
static inline f32x16 fma(f32x16 a, f32x16 b, f32x16 c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
static inline f32x16 min(f32x16 a, f32x16 b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
static inline f32x16 max(f32x16 a, f32x16 b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
static inline f32x16 select_less(f32x16 a, f32x16 b, f32x16 x, f32x16 y) {
  return {_mm256_blendv_ps(y.low, x.low, _mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.high, x.high, _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))};
}
static inline f32x16 load_f16(const std::uint16_t* p) {
  const auto* v = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(v)), _mm256_cvtph_ps(_mm_loadu_si128(v + 1))};
}
static inline f32x16 load_bf16(const std::uint16_t* p) {
  const auto* v = reinterpret_cast<const __m128i*>(p);
  const __m256i low = _mm256_cvtepu16_epi32(_mm_loadu_si128(v)), high = _mm256_cvtepu16_epi32(_mm_loadu_si128(v + 1));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(low, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(high, 16))};
}
static inline void store_f16(std::uint16_t* p, f32x16 a) {
  auto* v = reinterpret_cast<__m128i*>(p);
  _mm_storeu_si128(v, _mm256_cvtps_ph(a.low, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(v + 1, _mm256_cvtps_ph(a.high, _MM_FROUND_TO_NEAREST_INT));
}
static inline float sum_lanes(f32x16 a) {
  const __m256 eight = _mm256_add_ps(a.low, a.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
static inline float max_lanes(f32x16 a) {
  const __m256 eight = _mm256_max_ps(a.low, a.high);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

// ---- int32, 16 lanes
static inline i32x16 splat_int(std::int32_t value) { return {_mm256_set1_epi32(value), _mm256_set1_epi32(value)}; }
static inline i32x16 load_int(const std::int32_t* p) {
  const auto* v = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(v), _mm256_loadu_si256(v + 1)};
}
static inline i32x16 bits(f32x16 a) { return {_mm256_castps_si256(a.low), _mm256_castps_si256(a.high)}; }
static inline f32x16 from_bits(i32x16 a) { return {_mm256_castsi256_ps(a.low), _mm256_castsi256_ps(a.high)}; }
static inline i32x16 add(i32x16 a, i32x16 b) {
  return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}
static inline i32x16 sub(i32x16 a, i32x16 b) {
  return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
}
static inline i32x16 mul(i32x16 a, i32x16 b) {
  return {_mm256_mullo_epi32(a.low, b.low), _mm256_mullo_epi32(a.high, b.high)};
}
static inline i32x16 max(i32x16 a, i32x16 b) {
  return {_mm256_max_epi32(a.low, b.low), _mm256_max_epi32(a.high, b.high)};
}
static inline i32x16 and_int(i32x16 a, std::int32_t mask) {
  return {_mm256_and_si256(a.low, _mm256_set1_epi32(mask)), _mm256_and_si256(a.high, _mm256_set1_epi32(mask))};
}
template <int kShift>
static inline i32x16 shift_left(i32x16 a) {
  return {_mm256_slli_epi32(a.low, kShift), _mm256_slli_epi32(a.high, kShift)};
}
template <int kShift>
static inline i32x16 shift_right(i32x16 a) {
  return {_mm256_srai_epi32(a.low, kShift), _mm256_srai_epi32(a.high, kShift)};
}
using IntPairs = i32x16;
static inline IntPairs pair(i32x16 first, i32x16 second) {
  return {_mm256_or_si256(first.low, _mm256_slli_epi32(second.low, 16)),
          _mm256_or_si256(first.high, _mm256_slli_epi32(second.high, 16))};
}
static inline i32x16 pair_dot(IntPairs pairs, std::uint32_t both) {
  const __m256i x = _mm256_set1_epi32(static_cast<std::int32_t>(both));
  return {_mm256_madd_epi16(pairs.low, x), _mm256_madd_epi16(pairs.high, x)};
}
static inline f32x16 to_float(i32x16 a) { return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)}; }
static inline i32x16 load_u8(const std::uint8_t* p) {
  const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepu8_epi32(v), _mm256_cvtepu8_epi32(_mm_srli_si128(v, 8))};
}
static inline i32x16 load_s8(const std::uint8_t* p) {
  const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi8_epi32(v), _mm256_cvtepi8_epi32(_mm_srli_si128(v, 8))};
}
static inline void store_low_bytes(std::int8_t* p, i32x16 a) {
  const __m256i byte = _mm256_set1_epi32(0xff);
  const __m256i words = _mm256_packus_epi32(_mm256_and_si256(a.low, byte), _mm256_and_si256(a.high, byte));
  const __m256i ordered = _mm256_permute4x64_epi64(words, 0xd8);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm_packus_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1)));
}
static inline std::int32_t sum_lanes(i32x16 a) {
  const __m256i eight = _mm256_add_epi32(a.low, a.high);
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}
static inline std::int32_t max_lanes(i32x16 a) {
  const __m256i eight = _mm256_max_epi32(a.low, a.high);
  const __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

// ---- bytes
static inline Bytes load_bytes(const std::uint8_t* p) {
  const auto* v = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(v), _mm256_loadu_si256(v + 1)};
}
static inline void store_bytes(std::uint8_t* p, Bytes a) {
  auto* v = reinterpret_cast<__m256i*>(p);
  _mm256_storeu_si256(v, a.low);
  _mm256_storeu_si256(v + 1, a.high);
}
// Shifts whole 16-bit lanes; the mask drops what crossed over.
template <int kShift, int kMask>
static inline __m256i take(__m256i a) {
  static_assert(kShift >= 0 ? (kMask & ~(0xff >> kShift)) == 0 : (kMask & ((1 << -kShift) - 1)) == 0);
  if constexpr (kShift > 0) a = _mm256_srli_epi16(a, kShift);
  if constexpr (kShift < 0) a = _mm256_slli_epi16(a, -kShift);
  return _mm256_and_si256(a, _mm256_set1_epi8(static_cast<char>(kMask)));
}
template <int kShift, int kMask>
static inline Bytes take(Bytes a) {
  return {take<kShift, kMask>(a.low), take<kShift, kMask>(a.high)};
}
template <int kShift>
static inline __m256i shift_bits(__m256i a) {
  return kShift >= 0 ? _mm256_srli_epi16(a, kShift) : _mm256_slli_epi16(a, -kShift);
}
template <int kShift>
static inline Bytes shift_bits(Bytes a) {
  return {shift_bits<kShift>(a.low), shift_bits<kShift>(a.high)};
}
template <int kMask>
static inline __m256i select_bits(__m256i a, __m256i b) {
  const __m256i mask = _mm256_set1_epi8(static_cast<char>(kMask));
  return _mm256_or_si256(_mm256_and_si256(mask, a), _mm256_andnot_si256(mask, b));
}
template <int kMask>
static inline Bytes select_bits(Bytes a, Bytes b) {
  return {select_bits<kMask>(a.low, b.low), select_bits<kMask>(a.high, b.high)};
}
static inline Bytes or_bytes(Bytes a, Bytes b) {
  return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
}
static inline Bytes add_bytes(Bytes a, Bytes b) {
  return {_mm256_add_epi8(a.low, b.low), _mm256_add_epi8(a.high, b.high)};
}
constexpr int kByteOffset = 0;
static inline Bytes whole_bytes(Bytes a) { return a; }
static inline __m256i thirds(__m256i a) {
  const __m256i one = _mm256_set1_epi8(1);
  const __m256i beyond_first = _mm256_min_epu8(_mm256_subs_epu8(a, _mm256_set1_epi8(85)), one);
  const __m256i beyond_second = _mm256_min_epu8(_mm256_subs_epu8(a, _mm256_set1_epi8(static_cast<char>(170))), one);
  return _mm256_add_epi8(beyond_first, beyond_second);
}
static inline Bytes thirds(Bytes a) { return {thirds(a.low), thirds(a.high)}; }
using Table = __m256i;
static inline Table load_table(const std::uint8_t* p) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
static inline Table rearrange(Table table, Table indices) { return _mm256_shuffle_epi8(table, indices); }
static inline Bytes lookup(Table table, Bytes indices) {
  return {_mm256_shuffle_epi8(table, indices.low), _mm256_shuffle_epi8(table, indices.high)};
}

template <int kShift>
static inline Bytes spread_bits(const std::uint8_t* rows) {
  const __m256i all = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(rows)));
  const __m256i from =
      _mm256_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7);
  const __m256i bit = _mm256_set1_epi32(0x08040201 << kShift), one = _mm256_set1_epi8(1);
  const auto spread = [&](__m256i rows_of) {
    const __m256i v = _mm256_and_si256(_mm256_shuffle_epi8(all, rows_of), bit);
    return _mm256_and_si256(_mm256_cmpeq_epi8(v, bit), one);
  };
  return {spread(from), spread(_mm256_add_epi8(from, _mm256_set1_epi8(8)))};
}

// ---- 16-bit sums of table entries: first holds rows 0 to 7, second rows 8 to 15, of two lanes each
struct LutSum {
  __m256i first, second;
};
static inline LutSum no_lut_sum() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
static inline LutSum add_lookups(LutSum sum, __m256i low, __m256i high, __m256i indices) {
  const __m256i l = _mm256_shuffle_epi8(low, indices), h = _mm256_shuffle_epi8(high, indices);
  return {_mm256_add_epi16(sum.first, _mm256_unpacklo_epi8(l, h)),
          _mm256_add_epi16(sum.second, _mm256_unpackhi_epi8(l, h))};
}
static inline LutSum add_lookups(LutSum sum, const std::uint8_t* low, const std::uint8_t* high, Bytes indices) {
  const Bytes l = load_bytes(low), h = load_bytes(high);
  return add_lookups(add_lookups(sum, l.low, h.low, indices.low), l.high, h.high, indices.high);
}
// Entries of one byte; lane j of 16 bytes has the table tables + 16 j. add_rows adds one of each row.
static inline Bytes lookup_lanes(const std::uint8_t* tables, Bytes indices) {
  const Bytes t = load_bytes(tables);
  return {_mm256_shuffle_epi8(t.low, indices.low), _mm256_shuffle_epi8(t.high, indices.high)};
}
static inline LutSum add_rows(LutSum sum, __m256i rows) {
  return {_mm256_add_epi16(sum.first, _mm256_unpacklo_epi8(rows, _mm256_setzero_si256())),
          _mm256_add_epi16(sum.second, _mm256_unpackhi_epi8(rows, _mm256_setzero_si256()))};
}
static inline LutSum add_rows(LutSum sum, Bytes rows) { return add_rows(add_rows(sum, rows.low), rows.high); }
static inline i32x16 sum_lut(LutSum a) {
  const __m256i rows = _mm256_add_epi16(_mm256_permute2x128_si256(a.first, a.second, 0x20),
                                        _mm256_permute2x128_si256(a.first, a.second, 0x31));
  return {_mm256_cvtepi16_epi32(_mm256_castsi256_si128(rows)),
          _mm256_cvtepi16_epi32(_mm256_extracti128_si256(rows, 1))};
}

static inline __m256i broadcast_quad(const std::int8_t* quad) {
  std::int32_t four;
  __builtin_memcpy(&four, quad, 4);
  return _mm256_set1_epi32(four);
}
