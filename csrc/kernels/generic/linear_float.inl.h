// Matrix products with float weights, row by row: 16 virtual lanes over the columns, then the tree.

struct ValuesF32 {
  static constexpr Format kFormat = Format::f32;
  using Element = std::uint32_t;
  static inline f32x16 load_values(const std::uint8_t* p) { return load(reinterpret_cast<const float*>(p)); }
};
struct ValuesF16 {
  static constexpr Format kFormat = Format::f16;
  using Element = std::uint16_t;
  static inline f32x16 load_values(const std::uint8_t* p) {
    return load_f16(reinterpret_cast<const std::uint16_t*>(p));
  }
};
struct ValuesBF16 {
  static constexpr Format kFormat = Format::bf16;
  using Element = std::uint16_t;
  static inline f32x16 load_values(const std::uint8_t* p) {
    return load_bf16(reinterpret_cast<const std::uint16_t*>(p));
  }
};

// The first `n` values, the rest 0.
template <class V>
static inline f32x16 load_values_first(const std::uint8_t* p, int n) {
  alignas(64) std::uint8_t buffer[64] = {};
  __builtin_memcpy(buffer, p, static_cast<std::size_t>(n) * sizeof(typename V::Element));
  return V::load_values(buffer);
}

// kRows rows times kTokens tokens in registers.
template <class V, int kRows, int kTokens>
static inline void float_tile(const std::uint8_t* weights, std::int64_t row_bytes, int cols,
                              const float* const values[], float* const out[]) {
  constexpr std::int64_t kElement = sizeof(typename V::Element);
  f32x16 acc[kRows][kTokens];
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTokens; ++t) acc[r][t] = zero();
  }
  const int whole = cols / 16 * 16;
  for (std::int64_t k = 0; k < whole; k += 16) {
    f32x16 x[kTokens];
    for (int t = 0; t < kTokens; ++t) x[t] = load(values[t] + k);
    for (int r = 0; r < kRows; ++r) {
      const f32x16 w = V::load_values(weights + r * row_bytes + k * kElement);
      for (int t = 0; t < kTokens; ++t) acc[r][t] = fma(w, x[t], acc[r][t]);
    }
  }
  if (whole < cols) {
    for (int r = 0; r < kRows; ++r) {
      const f32x16 w = load_values_first<V>(weights + r * row_bytes + whole * kElement, cols - whole);
      for (int t = 0; t < kTokens; ++t) acc[r][t] = fma(w, load(values[t] + whole), acc[r][t]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTokens; ++t) out[t][r] = sum_lanes(acc[r][t]);
  }
}

// kTokens tokens times the rows of a strip.
template <class V, int kTokens>
static inline void float_strip(const WeightView& w, int row, int num_rows, const LinearInput& x, int token,
                               const LinearOutput& y) {
  const float* values[kTokens];
  float* out[kTokens];
  for (int t = 0; t < kTokens; ++t) {
    const std::int64_t vector = vector_of(x, token + t);
    values[t] = x.values + vector * x.values_stride;
    out[t] = y.y + (token + t) * y.stride + row;
  }
  const std::uint8_t* weights = w.parts[0] + row * w.row_bytes;
  int r = 0;
  const auto advance = [&](int rows) {
    r += rows;
    weights += rows * w.row_bytes;
    for (int t = 0; t < kTokens; ++t) out[t] += rows;
  };
  constexpr int kRows = kTokens == 1 ? kFloatRowsOfOne : kFloatRows;
  while (r + kRows <= num_rows) {
    float_tile<V, kRows, kTokens>(weights, w.row_bytes, w.cols, values, out);
    advance(kRows);
  }
  while (r < num_rows) {
    float_tile<V, 1, kTokens>(weights, w.row_bytes, w.cols, values, out);
    advance(1);
  }
}

template <class V>
static void linear_float(const WeightView& w, const LinearInput& x, const LinearOutput& y, int first_strip,
                         int last_strip) {
  // A strip of weights is read from memory once; its rows stay in the cache for all tokens.
  for (int s = first_strip; s < last_strip; ++s) {
    const int row = s * kStripRows, num_rows = rows_of_strip(w, s);
    int token = 0;
    for (; token + kFloatTokens <= x.tokens; token += kFloatTokens) {
      float_strip<V, kFloatTokens>(w, row, num_rows, x, token, y);
    }
    for (; token < x.tokens; ++token) float_strip<V, 1>(w, row, num_rows, x, token, y);
    for (int t = 0; t < x.tokens; ++t) finish_rows(w, x, y, s, t);
  }
}

template <class V>
static void dequantize_float(const WeightView& w, int row, float* y) {
  constexpr std::int64_t kElement = sizeof(typename V::Element);
  const std::uint8_t* p = w.parts[0] + row * w.row_bytes;
  for (std::int64_t k = 0; k < w.cols; k += 16) {
    const int n = w.cols - k < 16 ? static_cast<int>(w.cols - k) : 16;
    store(y + k, n == 16 ? V::load_values(p + k * kElement) : load_values_first<V>(p + k * kElement, n));
  }
}
