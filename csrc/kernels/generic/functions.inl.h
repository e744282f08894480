// exp, tanh and sigmoid on 16 lanes, by our own polynomials: the same bits everywhere. NaN stays NaN.

static inline f32x16 load_first(const float* p, std::int64_t n, float rest) {
  alignas(64) float buffer[16];
  for (int i = 0; i < 16; ++i) buffer[i] = i < n ? p[i] : rest;
  return load(buffer);
}

static inline void store_first(float* p, f32x16 a, std::int64_t n) {
  alignas(64) float buffer[16];
  store(buffer, a);
  for (std::int64_t i = 0; i < n && i < 16; ++i) p[i] = buffer[i];
}

// 1.5 * 2^23: added to a float below 2^22 it leaves the nearest integer, ties to even, in the low bits.
constexpr float kRoundingMagic = 12582912.0f;
constexpr std::int32_t kRoundingMagicBits = 0x4b400000;

// 0 below -87, clamped above 88. exp(0) is exactly 1.
static inline f32x16 exp(f32x16 x) {
  const f32x16 clamped = min(splat(88.0f), x);
  const f32x16 shifted = fma(clamped, splat(0x1.715476p+0f), splat(kRoundingMagic));
  const f32x16 n = sub(shifted, splat(kRoundingMagic));
  f32x16 r =
      fma(n, splat(-0x1.62e4p-1f), clamped);  // ln 2 in two pieces; the first has 15 bits, so n times it is exact
  r = fma(n, splat(-0x1.7f7d1cp-20f), r);
  f32x16 p = splat(1.0f / 5040.0f);
  p = fma(p, r, splat(1.0f / 720.0f));
  p = fma(p, r, splat(1.0f / 120.0f));
  p = fma(p, r, splat(1.0f / 24.0f));
  p = fma(p, r, splat(1.0f / 6.0f));
  p = fma(p, r, splat(0.5f));
  p = fma(p, r, splat(1.0f));
  p = fma(p, r, splat(1.0f));
  const i32x16 exponent = add(bits(shifted), splat_int(127 - kRoundingMagicBits));
  const f32x16 value = mul(p, from_bits(shift_left<23>(exponent)));
  return select_less(x, splat(-87.0f), zero(), value);
}

static inline f32x16 sigmoid(f32x16 x) { return div(splat(1.0f), add(splat(1.0f), exp(sub(zero(), x)))); }

// Odd polynomial below 0.4; else 1 - 2 / (exp(2 |x|) + 1) with the sign of x.
static inline f32x16 tanh(f32x16 x) {
  const f32x16 magnitude = max(sub(zero(), x), x);
  const f32x16 z = mul(x, x);
  f32x16 p = splat(-0x1.226e36p-7f);  // Taylor: -1382/155925, 62/2835, -17/315, 2/15, -1/3
  p = fma(p, z, splat(62.0f / 2835.0f));
  p = fma(p, z, splat(-17.0f / 315.0f));
  p = fma(p, z, splat(2.0f / 15.0f));
  p = fma(p, z, splat(-1.0f / 3.0f));
  const f32x16 small = fma(mul(p, z), x, x);
  const f32x16 e = exp(add(magnitude, magnitude));
  const f32x16 large = sub(splat(1.0f), div(splat(2.0f), add(e, splat(1.0f))));
  const f32x16 with_sign = select_less(x, zero(), sub(zero(), large), large);
  return select_less(magnitude, splat(0.4f), small, with_sign);
}
