// Activations to int8: scale = amax / 127, code = nearest(x * (127 / amax)), ties to even. A scale serves 64 or 32
// columns; the sums are of the codes of 16, 32 and 64.

// Codes of kVectors * 16 columns that share a scale; their sums go to of16.
template <int kVectors>
static inline void quantize_run(const f32x16* x, std::int8_t* codes, float* scale, std::int32_t* of16) {
  // As integers, so that a NaN is the largest of all and reaches the scale.
  i32x16 amax_bits = splat_int(0);
  for (int i = 0; i < kVectors; ++i) amax_bits = max(amax_bits, and_int(bits(x[i]), 0x7fffffff));
  const std::int32_t largest = max_lanes(amax_bits);
  float amax;
  __builtin_memcpy(&amax, &largest, 4);
  const bool is_zero = amax < 0x1p-100f;
  *scale = is_zero ? 0.0f : amax / 127.0f;
  const f32x16 inverse = splat(is_zero ? 0.0f : 127.0f / amax);
  for (int i = 0; i < kVectors; ++i) {
    const f32x16 scaled = max(min(mul(x[i], inverse), splat(127.0f)), splat(-127.0f));
    const i32x16 code = sub(bits(add(scaled, splat(kRoundingMagic))), splat_int(kRoundingMagicBits));
    store_low_bytes(codes + 16 * i, code);
    of16[i] = sum_lanes(code);
  }
}

static void quantize(const float* x, int cols, int scale_columns, std::int8_t* codes, std::int64_t step, float* scales,
                     GroupSums* sums) {
  for (int g = 0; g * kGroupColumns < cols; ++g) {
    const float* p = x + g * kGroupColumns;
    const int left = cols - g * kGroupColumns;
    f32x16 v[4];
    for (int i = 0; i < 4; ++i) {
      const int n = left - 16 * i;
      v[i] = n >= 16 ? load(p + 16 * i) : n > 0 ? load_first(p + 16 * i, n, 0.0f) : zero();
    }
    std::int8_t* out = codes + g * step;
    GroupSums& s = sums[g];
    if (scale_columns == 32) {
      quantize_run<2>(v, out, scales + 2 * g, s.of16);
      quantize_run<2>(v + 2, out + 32, scales + 2 * g + 1, s.of16 + 2);
    } else {
      quantize_run<4>(v, out, scales + g, s.of16);
    }
    s.of32[0] = s.of16[0] + s.of16[1];
    s.of32[1] = s.of16[2] + s.of16[3];
    s.of64 = s.of32[0] + s.of32[1];
    s.minus32 = pair_of(-s.of32[0], -s.of32[1]);
  }
}
