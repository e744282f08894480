// The vector types as plain loops: the specification that every other simd/*.h follows bit by bit.
// Included inside the namespace of an instruction set; what each function means is written here and nowhere else.

// Tuning: rows and tokens of a float tile, its rows for one token, query rows and value vectors of attention, how far
// ahead to prefetch into the first and the second-level cache.
constexpr int kFloatRows = 4, kFloatTokens = 2, kFloatRowsOfOne = 4, kAttentionRows = 4, kAttentionVectors = 1;
constexpr int kNearBytes = 4096, kFarBytes = 16384;

struct f32x16 {
  float v[16];
};
struct i32x16 {
  std::int32_t v[16];
};
// 16 rows (lanes of 4 bytes) x 4 neighbouring columns.
struct Bytes {
  std::uint8_t v[64];
};

#define EDGERT_LANES for (int i = 0; i < 16; ++i)

// ---- float32, 16 lanes
static inline f32x16 splat(float value) {
  f32x16 r;
  EDGERT_LANES r.v[i] = value;
  return r;
}
static inline f32x16 zero() { return splat(0.0f); }
static inline f32x16 load(const float* p) {
  f32x16 r;
  __builtin_memcpy(r.v, p, 64);
  return r;
}
static inline void store(float* p, f32x16 a) { __builtin_memcpy(p, a.v, 64); }
static inline f32x16 add(f32x16 a, f32x16 b) {
  EDGERT_LANES a.v[i] = a.v[i] + b.v[i];
  return a;
}
static inline f32x16 sub(f32x16 a, f32x16 b) {
  EDGERT_LANES a.v[i] = a.v[i] - b.v[i];
  return a;
}
static inline f32x16 mul(f32x16 a, f32x16 b) {
  EDGERT_LANES a.v[i] = a.v[i] * b.v[i];
  return a;
}
static inline f32x16 div(f32x16 a, f32x16 b) {
  EDGERT_LANES a.v[i] = a.v[i] / b.v[i];
  return a;
}
static inline f32x16 fma(f32x16 a, f32x16 b, f32x16 c) {
  EDGERT_LANES c.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
  return c;
}
// The second operand if either is NaN.
static inline f32x16 min(f32x16 a, f32x16 b) {
  EDGERT_LANES a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
  return a;
}
static inline f32x16 max(f32x16 a, f32x16 b) {
  EDGERT_LANES a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
  return a;
}
// a < b ? x : y, lane by lane; y where a or b is NaN.
static inline f32x16 select_less(f32x16 a, f32x16 b, f32x16 x, f32x16 y) {
  EDGERT_LANES x.v[i] = a.v[i] < b.v[i] ? x.v[i] : y.v[i];
  return x;
}
// Weights in file order may lie at any address: all loads are unaligned.
static inline f32x16 load_f16(const std::uint16_t* p) {
  std::uint16_t bits[16];
  f32x16 r;
  __builtin_memcpy(bits, p, 32);
  EDGERT_LANES r.v[i] = float_from_f16(bits[i]);
  return r;
}
static inline f32x16 load_bf16(const std::uint16_t* p) {
  std::uint16_t bits[16];
  f32x16 r;
  __builtin_memcpy(bits, p, 32);
  EDGERT_LANES r.v[i] = float_from_bf16(bits[i]);
  return r;
}
static inline void store_f16(std::uint16_t* p, f32x16 a) { EDGERT_LANES p[i] = f16_from_float(a.v[i]); }
// The tree of the contract: lane i + 8 is added to i, then i + 4, i + 2, i + 1.
static inline float sum_lanes(f32x16 a) {
  for (int half = 8; half >= 1; half /= 2) {
    for (int i = 0; i < half; ++i) a.v[i] = a.v[i] + a.v[i + half];
  }
  return a.v[0];
}
static inline float max_lanes(f32x16 a) {
  for (int half = 8; half >= 1; half /= 2) {
    for (int i = 0; i < half; ++i) a.v[i] = a.v[i] > a.v[i + half] ? a.v[i] : a.v[i + half];
  }
  return a.v[0];
}

// ---- int32, 16 lanes; sums wrap
static inline i32x16 splat_int(std::int32_t value) {
  i32x16 r;
  EDGERT_LANES r.v[i] = value;
  return r;
}
static inline i32x16 load_int(const std::int32_t* p) {
  i32x16 r;
  __builtin_memcpy(r.v, p, 64);
  return r;
}
static inline i32x16 bits(f32x16 a) {
  i32x16 r;
  __builtin_memcpy(r.v, a.v, 64);
  return r;
}
static inline f32x16 from_bits(i32x16 a) {
  f32x16 r;
  __builtin_memcpy(r.v, a.v, 64);
  return r;
}
static inline i32x16 add(i32x16 a, i32x16 b) {
  EDGERT_LANES a.v[i] =
      static_cast<std::int32_t>(static_cast<std::uint32_t>(a.v[i]) + static_cast<std::uint32_t>(b.v[i]));
  return a;
}
static inline i32x16 sub(i32x16 a, i32x16 b) {
  EDGERT_LANES a.v[i] =
      static_cast<std::int32_t>(static_cast<std::uint32_t>(a.v[i]) - static_cast<std::uint32_t>(b.v[i]));
  return a;
}
static inline i32x16 mul(i32x16 a, i32x16 b) {
  EDGERT_LANES a.v[i] =
      static_cast<std::int32_t>(static_cast<std::uint32_t>(a.v[i]) * static_cast<std::uint32_t>(b.v[i]));
  return a;
}
static inline i32x16 max(i32x16 a, i32x16 b) {
  EDGERT_LANES a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
  return a;
}
static inline i32x16 and_int(i32x16 a, std::int32_t mask) {
  EDGERT_LANES a.v[i] &= mask;
  return a;
}
// Pairs of numbers that fit 16 bits.
struct IntPairs {
  i32x16 first, second;
};
static inline IntPairs pair(i32x16 first, i32x16 second) { return {first, second}; }
// first * the lower 16 bits of both + second * the upper ones (pair_of), exact.
static inline i32x16 pair_dot(IntPairs pairs, std::uint32_t both) {
  const std::int32_t x = static_cast<std::int16_t>(both & 0xffff), y = static_cast<std::int16_t>(both >> 16);
  i32x16 r;
  EDGERT_LANES r.v[i] = pairs.first.v[i] * x + pairs.second.v[i] * y;
  return r;
}
template <int kShift>
static inline i32x16 shift_left(i32x16 a) {
  EDGERT_LANES a.v[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(a.v[i]) << kShift);
  return a;
}
static inline f32x16 to_float(i32x16 a) {
  f32x16 r;
  EDGERT_LANES r.v[i] = static_cast<float>(a.v[i]);
  return r;
}
static inline i32x16 load_u8(const std::uint8_t* p) {
  i32x16 r;
  EDGERT_LANES r.v[i] = p[i];
  return r;
}
static inline i32x16 load_s8(const std::uint8_t* p) {
  i32x16 r;
  EDGERT_LANES r.v[i] = static_cast<std::int8_t>(p[i]);
  return r;
}
// The low byte of every lane.
static inline void store_low_bytes(std::int8_t* p, i32x16 a) {
  EDGERT_LANES p[i] = static_cast<std::int8_t>(a.v[i] & 0xff);
}
static inline std::int32_t max_lanes(i32x16 a) {
  std::int32_t r = a.v[0];
  EDGERT_LANES r = a.v[i] > r ? a.v[i] : r;
  return r;
}
static inline std::int32_t sum_lanes(i32x16 a) {
  std::uint32_t r = 0;
  EDGERT_LANES r += static_cast<std::uint32_t>(a.v[i]);
  return static_cast<std::int32_t>(r);
}
#undef EDGERT_LANES

// ---- bytes
#define EDGERT_BYTES for (int i = 0; i < 64; ++i)
static inline Bytes load_bytes(const std::uint8_t* p) {
  Bytes r;
  __builtin_memcpy(r.v, p, 64);
  return r;
}
static inline void store_bytes(std::uint8_t* p, Bytes a) { __builtin_memcpy(p, a.v, 64); }
// (byte >> kShift) & kMask; a negative shift goes left.
template <int kShift, int kMask>
static inline Bytes take(Bytes a) {
  EDGERT_BYTES a.v[i] = static_cast<std::uint8_t>((kShift >= 0 ? a.v[i] >> kShift : a.v[i] << -kShift) & kMask);
  return a;
}
static inline Bytes or_bytes(Bytes a, Bytes b) {
  EDGERT_BYTES a.v[i] |= b.v[i];
  return a;
}
// Like take, but what enters or leaves a byte means nothing: for select_bits.
template <int kShift>
static inline Bytes shift_bits(Bytes a) {
  return take<kShift, 0xff>(a);
}
// Of every byte the bits of kMask from a, the others from b.
template <int kMask>
static inline Bytes select_bits(Bytes a, Bytes b) {
  EDGERT_BYTES a.v[i] = static_cast<std::uint8_t>((a.v[i] & kMask) | (b.v[i] & ~kMask));
  return a;
}
// Sums modulo 256.
static inline Bytes add_bytes(Bytes a, Bytes b) {
  EDGERT_BYTES a.v[i] = static_cast<std::uint8_t>(a.v[i] + b.v[i]);
  return a;
}
// A dot takes codes below 128, and what kFieldDown and kPlaneDown leave. whole_bytes puts any byte into the form that
// it takes: less kByteOffset, 0 or 128.
constexpr int kByteOffset = 0;
static inline Bytes whole_bytes(Bytes a) { return a; }
// In which third of 256 a byte lies: floor(3 byte / 256).
static inline Bytes thirds(Bytes a) {
  EDGERT_BYTES a.v[i] = static_cast<std::uint8_t>((3 * a.v[i]) >> 8);
  return a;
}
// A table of 16 bytes, at any address.
struct Table {
  std::uint8_t v[16];
};
static inline Table load_table(const std::uint8_t* p) {
  Table r;
  __builtin_memcpy(r.v, p, 16);
  return r;
}
// A table of the entries that `indices` name.
static inline Table rearrange(Table table, Table indices) {
  for (std::uint8_t& index : indices.v) index = table.v[index];
  return indices;
}
// table[index] for every byte. REQUIRES: indices below 16.
static inline Bytes lookup(Table table, Bytes indices) {
  EDGERT_BYTES indices.v[i] = table.v[indices.v[i]];
  return indices;
}
#undef EDGERT_BYTES
// Byte 4 r + c is bit kShift + c of rows[r].
template <int kShift>
static inline Bytes spread_bits(const std::uint8_t* rows) {
  Bytes r;
  for (int i = 0; i < 64; ++i) r.v[i] = (rows[i / 4] >> (kShift + i % 4)) & 1;
  return r;
}

// ---- sums of table entries of 16 bits, for 16 rows. Lane j of 16 bytes has the tables low + 16 j and high + 16 j;
// byte r of each lane is the index of row r. At most 64 look-ups of sums of four codes fit.
struct LutSum {
  std::int32_t v[16];
};
static inline LutSum no_lut_sum() { return {}; }
static inline LutSum add_lookups(LutSum sum, const std::uint8_t* low, const std::uint8_t* high, Bytes indices) {
  for (int i = 0; i < 64; ++i) {
    const int entry = i / 16 * 16 + indices.v[i];
    sum.v[i % 16] += static_cast<std::int8_t>(high[entry]) * 256 + low[entry];
  }
  return sum;
}
// Entries of one byte; lane j of 16 bytes has the table tables + 16 j. add_rows adds one of each row.
static inline Bytes lookup_lanes(const std::uint8_t* tables, Bytes indices) {
  for (int i = 0; i < 64; ++i) indices.v[i] = tables[i / 16 * 16 + indices.v[i]];
  return indices;
}
static inline LutSum add_rows(LutSum sum, Bytes rows) {
  for (int i = 0; i < 64; ++i) sum.v[i % 16] += rows.v[i];
  return sum;
}
static inline i32x16 sum_lut(LutSum a) {
  i32x16 r;
  __builtin_memcpy(r.v, a.v, 64);
  return r;
}

// ---- dot products of a vector of codes with one quad of activations (4 bytes, the same for every row)
// DotSum adds up products before they are widened to 32 bits: code x quads must not exceed kDotCapacity.
// kFieldDown, kPlaneDown, kNibbleDown: how far a piece is shifted down before it is masked and multiplied.
using DotSum = i32x16;
constexpr int kDotCapacity = 1 << 20;
constexpr int kFieldDown[4] = {0, 2, 4, 6}, kPlaneDown[8] = {0, 1, 2, 3, 4, 5, 6, 7}, kNibbleDown = 4;

static inline DotSum no_sum() { return splat_int(0); }
static inline DotSum dot(DotSum sum, Bytes codes, const std::int8_t* quad) {
  for (int row = 0; row < 16; ++row) {
    for (int c = 0; c < 4; ++c) sum.v[row] += codes.v[4 * row + c] * quad[c];
  }
  return sum;
}
template <int kShift>
static inline DotSum shift_right(DotSum a) {
  for (int i = 0; i < 16; ++i) a.v[i] >>= kShift;
  return a;
}
static inline i32x16 widen(DotSum a) { return a; }

// Signed codes: signed_bytes puts them into the form that signed_dot wants; the first sum is signed_start of the
// exact sum of the activations.
static inline Bytes signed_bytes(Bytes a) { return a; }
static inline Table signed_table(Table a) { return a; }  // lookup then gives signed_bytes of the values
static inline i32x16 signed_start(std::int32_t) { return splat_int(0); }
static inline i32x16 signed_dot(i32x16 sum, Bytes codes, const std::int8_t* quad) {
  for (int row = 0; row < 16; ++row) {
    for (int c = 0; c < 4; ++c) sum.v[row] += static_cast<std::int8_t>(codes.v[4 * row + c]) * quad[c];
  }
  return sum;
}
