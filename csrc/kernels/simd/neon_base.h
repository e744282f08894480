// aarch64 NEON: 16 lanes are four registers. What each function means: simd/scalar.h.
// The dots follow in simd/neon.h or simd/neon_dotprod.h.
constexpr int kFloatRows = 2, kFloatTokens = 2, kFloatRowsOfOne = 4, kAttentionRows = 2, kAttentionVectors = 2;
constexpr int kNearBytes = 4096, kFarBytes = 16384;

struct f32x16 {
  float32x4_t q[4];
};
struct i32x16 {
  int32x4_t q[4];
};
struct Bytes {
  uint8x16_t q[4];
};

// The same for the four registers.
#define EDGERT_EACH(type, expression)                \
  type r;                                            \
  for (int i = 0; i < 4; ++i) r.q[i] = (expression); \
  return r

// ---- float32, 16 lanes
static inline f32x16 splat(float value) { EDGERT_EACH(f32x16, vdupq_n_f32(value)); }
static inline f32x16 zero() { return splat(0.0f); }
static inline f32x16 load(const float* p) { EDGERT_EACH(f32x16, vld1q_f32(p + 4 * i)); }
static inline void store(float* p, f32x16 a) {
  for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, a.q[i]);
}
static inline f32x16 add(f32x16 a, f32x16 b) { EDGERT_EACH(f32x16, vaddq_f32(a.q[i], b.q[i])); }
static inline f32x16 sub(f32x16 a, f32x16 b) { EDGERT_EACH(f32x16, vsubq_f32(a.q[i], b.q[i])); }
static inline f32x16 mul(f32x16 a, f32x16 b) { EDGERT_EACH(f32x16, vmulq_f32(a.q[i], b.q[i])); }
static inline f32x16 div(f32x16 a, f32x16 b) { EDGERT_EACH(f32x16, vdivq_f32(a.q[i], b.q[i])); }
static inline f32x16 fma(f32x16 a, f32x16 b, f32x16 c) { EDGERT_EACH(f32x16, vfmaq_f32(c.q[i], a.q[i], b.q[i])); }
// By comparison: the minimum and maximum instructions treat NaN in another way.
static inline f32x16 min(f32x16 a, f32x16 b) {
  EDGERT_EACH(f32x16, vbslq_f32(vcltq_f32(a.q[i], b.q[i]), a.q[i], b.q[i]));
}
static inline f32x16 max(f32x16 a, f32x16 b) {
  EDGERT_EACH(f32x16, vbslq_f32(vcgtq_f32(a.q[i], b.q[i]), a.q[i], b.q[i]));
}
static inline f32x16 select_less(f32x16 a, f32x16 b, f32x16 x, f32x16 y) {
  EDGERT_EACH(f32x16, vbslq_f32(vcltq_f32(a.q[i], b.q[i]), x.q[i], y.q[i]));
}
static inline f32x16 load_f16(const std::uint16_t* p) {
  EDGERT_EACH(f32x16, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i))));
}
static inline f32x16 load_bf16(const std::uint16_t* p) {
  EDGERT_EACH(f32x16, vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16)));
}
static inline void store_f16(std::uint16_t* p, f32x16 a) {
  for (int i = 0; i < 4; ++i) vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(a.q[i])));
}
static inline float sum_lanes(f32x16 a) {
  const float32x4_t four = vaddq_f32(vaddq_f32(a.q[0], a.q[2]), vaddq_f32(a.q[1], a.q[3]));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
static inline float max_lanes(f32x16 a) {
  return vmaxvq_f32(vmaxq_f32(vmaxq_f32(a.q[0], a.q[2]), vmaxq_f32(a.q[1], a.q[3])));
}

// ---- int32, 16 lanes
static inline i32x16 splat_int(std::int32_t value) { EDGERT_EACH(i32x16, vdupq_n_s32(value)); }
static inline i32x16 load_int(const std::int32_t* p) { EDGERT_EACH(i32x16, vld1q_s32(p + 4 * i)); }
static inline i32x16 bits(f32x16 a) { EDGERT_EACH(i32x16, vreinterpretq_s32_f32(a.q[i])); }
static inline f32x16 from_bits(i32x16 a) { EDGERT_EACH(f32x16, vreinterpretq_f32_s32(a.q[i])); }
static inline i32x16 add(i32x16 a, i32x16 b) { EDGERT_EACH(i32x16, vaddq_s32(a.q[i], b.q[i])); }
static inline i32x16 sub(i32x16 a, i32x16 b) { EDGERT_EACH(i32x16, vsubq_s32(a.q[i], b.q[i])); }
struct IntPairs {
  i32x16 first, second;
};
static inline IntPairs pair(i32x16 first, i32x16 second) { return {first, second}; }
static inline i32x16 pair_dot(IntPairs pairs, std::uint32_t both) {
  const std::int32_t x = static_cast<std::int16_t>(both & 0xffff), y = static_cast<std::int16_t>(both >> 16);
  EDGERT_EACH(i32x16, vmlaq_n_s32(vmulq_n_s32(pairs.first.q[i], x), pairs.second.q[i], y));
}
static inline i32x16 mul(i32x16 a, i32x16 b) { EDGERT_EACH(i32x16, vmulq_s32(a.q[i], b.q[i])); }
static inline i32x16 max(i32x16 a, i32x16 b) { EDGERT_EACH(i32x16, vmaxq_s32(a.q[i], b.q[i])); }
static inline i32x16 and_int(i32x16 a, std::int32_t mask) { EDGERT_EACH(i32x16, vandq_s32(a.q[i], vdupq_n_s32(mask))); }
template <int kShift>
static inline i32x16 shift_left(i32x16 a) {
  EDGERT_EACH(i32x16, vshlq_n_s32(a.q[i], kShift));
}
template <int kShift>
static inline i32x16 shift_right(i32x16 a) {
  if constexpr (kShift > 0) {
    for (int i = 0; i < 4; ++i) a.q[i] = vshrq_n_s32(a.q[i], kShift);
  }
  return a;
}
static inline f32x16 to_float(i32x16 a) { EDGERT_EACH(f32x16, vcvtq_f32_s32(a.q[i])); }
static inline i32x16 load_u8(const std::uint8_t* p) {
  const uint8x16_t v = vld1q_u8(p);
  const uint16x8_t low = vmovl_u8(vget_low_u8(v)), high = vmovl_u8(vget_high_u8(v));
  return {{vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))), vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(low))),
           vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))),
           vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(high)))}};
}
static inline i32x16 load_s8(const std::uint8_t* p) {
  const int8x16_t v = vreinterpretq_s8_u8(vld1q_u8(p));
  const int16x8_t low = vmovl_s8(vget_low_s8(v)), high = vmovl_s8(vget_high_s8(v));
  return {{vmovl_s16(vget_low_s16(low)), vmovl_s16(vget_high_s16(low)), vmovl_s16(vget_low_s16(high)),
           vmovl_s16(vget_high_s16(high))}};
}
static inline void store_low_bytes(std::int8_t* p, i32x16 a) {
  const int16x8_t low = vcombine_s16(vmovn_s32(a.q[0]), vmovn_s32(a.q[1]));
  const int16x8_t high = vcombine_s16(vmovn_s32(a.q[2]), vmovn_s32(a.q[3]));
  vst1q_s8(p, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}
static inline std::int32_t sum_lanes(i32x16 a) {
  return vaddvq_s32(vaddq_s32(vaddq_s32(a.q[0], a.q[1]), vaddq_s32(a.q[2], a.q[3])));
}
static inline std::int32_t max_lanes(i32x16 a) {
  return vmaxvq_s32(vmaxq_s32(vmaxq_s32(a.q[0], a.q[1]), vmaxq_s32(a.q[2], a.q[3])));
}

// ---- bytes
static inline Bytes load_bytes(const std::uint8_t* p) { EDGERT_EACH(Bytes, vld1q_u8(p + 16 * i)); }
static inline void store_bytes(std::uint8_t* p, Bytes a) {
  for (int i = 0; i < 4; ++i) vst1q_u8(p + 16 * i, a.q[i]);
}
template <int kShift, int kMask>
static inline uint8x16_t take(uint8x16_t a) {
  if constexpr (kShift > 0) a = vshrq_n_u8(a, kShift);
  if constexpr (kShift < 0) a = vshlq_n_u8(a, -kShift);
  if constexpr (kShift > 0) {
    if constexpr (kMask == (0xff >> kShift)) return a;  // the shift has cleared the rest
  }
  return vandq_u8(a, vdupq_n_u8(kMask));
}
template <int kShift, int kMask>
static inline Bytes take(Bytes a) {
  EDGERT_EACH(Bytes, (take<kShift, kMask>(a.q[i])));
}
template <int kShift>
static inline Bytes shift_bits(Bytes a) {
  if constexpr (kShift >= 0) {
    EDGERT_EACH(Bytes, vshrq_n_u8(a.q[i], kShift));
  } else {
    EDGERT_EACH(Bytes, vshlq_n_u8(a.q[i], -kShift));
  }
}
template <int kMask>
static inline Bytes select_bits(Bytes a, Bytes b) {
  EDGERT_EACH(Bytes, vbslq_u8(vdupq_n_u8(kMask), a.q[i], b.q[i]));
}
static inline Bytes or_bytes(Bytes a, Bytes b) { EDGERT_EACH(Bytes, vorrq_u8(a.q[i], b.q[i])); }
static inline Bytes add_bytes(Bytes a, Bytes b) { EDGERT_EACH(Bytes, vaddq_u8(a.q[i], b.q[i])); }
constexpr int kByteOffset = 128;
static inline Bytes whole_bytes(Bytes a) { EDGERT_EACH(Bytes, veorq_u8(a.q[i], vdupq_n_u8(0x80))); }
static inline Bytes thirds(Bytes a) {
  EDGERT_EACH(Bytes, vshrq_n_u8(vhaddq_u8(a.q[i], vshrq_n_u8(a.q[i], 1)), 6));  // from floor(3 a / 4)
}
using Table = uint8x16_t;
static inline Table load_table(const std::uint8_t* p) { return vld1q_u8(p); }
static inline Table rearrange(Table table, Table indices) { return vqtbl1q_u8(table, indices); }
static inline Bytes lookup(Table table, Bytes indices) { EDGERT_EACH(Bytes, vqtbl1q_u8(table, indices.q[i])); }
template <int kShift>
static inline Bytes spread_bits(const std::uint8_t* rows) {
  static const std::uint8_t kFrom[64] = {0,  0,  0,  0,  1,  1,  1,  1,  2,  2,  2,  2,  3,  3,  3,  3,
                                         4,  4,  4,  4,  5,  5,  5,  5,  6,  6,  6,  6,  7,  7,  7,  7,
                                         8,  8,  8,  8,  9,  9,  9,  9,  10, 10, 10, 10, 11, 11, 11, 11,
                                         12, 12, 12, 12, 13, 13, 13, 13, 14, 14, 14, 14, 15, 15, 15, 15};
  const uint8x16_t all = vld1q_u8(rows), one = vdupq_n_u8(1);
  const uint8x16_t bit = vreinterpretq_u8_u32(vdupq_n_u32(0x08040201u << kShift));
  EDGERT_EACH(Bytes, vandq_u8(vtstq_u8(vqtbl1q_u8(all, vld1q_u8(kFrom + 16 * i)), bit), one));
}

// ---- 16-bit sums of table entries: first holds rows 0 to 7, second rows 8 to 15
struct LutSum {
  int16x8_t first, second;
};
static inline LutSum no_lut_sum() { return {vdupq_n_s16(0), vdupq_n_s16(0)}; }
static inline LutSum add_lookups(LutSum sum, const std::uint8_t* low, const std::uint8_t* high, Bytes indices) {
  for (int i = 0; i < 4; ++i) {
    const uint8x16_t l = vqtbl1q_u8(vld1q_u8(low + 16 * i), indices.q[i]);
    const uint8x16_t h = vqtbl1q_u8(vld1q_u8(high + 16 * i), indices.q[i]);
    sum.first = vaddq_s16(sum.first, vreinterpretq_s16_u8(vzip1q_u8(l, h)));
    sum.second = vaddq_s16(sum.second, vreinterpretq_s16_u8(vzip2q_u8(l, h)));
  }
  return sum;
}
// Entries of one byte; lane j of 16 bytes has the table tables + 16 j. add_rows adds one of each row.
static inline Bytes lookup_lanes(const std::uint8_t* tables, Bytes indices) {
  EDGERT_EACH(Bytes, vqtbl1q_u8(vld1q_u8(tables + 16 * i), indices.q[i]));
}
static inline LutSum add_rows(LutSum sum, Bytes rows) {
  for (int i = 0; i < 4; ++i) {
    sum.first = vreinterpretq_s16_u16(vaddw_u8(vreinterpretq_u16_s16(sum.first), vget_low_u8(rows.q[i])));
    sum.second = vreinterpretq_s16_u16(vaddw_high_u8(vreinterpretq_u16_s16(sum.second), rows.q[i]));
  }
  return sum;
}
static inline i32x16 sum_lut(LutSum a) {
  return {{vmovl_s16(vget_low_s16(a.first)), vmovl_high_s16(a.first), vmovl_s16(vget_low_s16(a.second)),
           vmovl_high_s16(a.second)}};
}

// As asm, so that a quad is loaded wherever it is used: the compiler would load it once, and store it and load it again
// for want of registers.
static inline int8x16_t broadcast_quad(const std::int8_t* quad) {
  int8x16_t four;
  __asm__ volatile("ld1r {%0.4s}, %1" : "=w"(four) : "Q"(*reinterpret_cast<const std::int32_t*>(quad)));
  return four;
}
static inline Bytes signed_bytes(Bytes a) { return a; }
static inline Table signed_table(Table a) { return a; }
static inline i32x16 signed_start(std::int32_t) { return splat_int(0); }
