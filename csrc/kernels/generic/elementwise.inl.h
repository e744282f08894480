// Operations on float vectors. Element by element, or summed in 16 lanes and the tree.

template <class F>
static inline void for_each_vector(std::int64_t n, float* y, F&& value) {
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) store(y + i, value([&](const float* p) { return load(p + i); }));
  if (i < n) store_first(y + i, value([&](const float* p) { return load_first(p + i, n - i, 0.0f); }), n - i);
}

static void add_vectors(const float* a, const float* b, float* y, std::int64_t n) {
  for_each_vector(n, y, [&](auto at) { return add(at(a), at(b)); });
}

static void silu_mul(const float* gate, const float* up, float* y, std::int64_t n) {
  for_each_vector(n, y, [&](auto at) {
    const f32x16 g = at(gate);
    return mul(div(g, add(splat(1.0f), exp(sub(zero(), g)))), at(up));
  });
}

// The tanh form of GELU, written as x times the sigmoid of 2 u, u = sqrt(2 / pi) (x + 0.044715 x^3): 1 + tanh(u) would
// cancel.
static void gelu_mul(const float* gate, const float* up, float* y, std::int64_t n) {
  constexpr float kTwiceRoot = 0x1.988454p+0f, kCubic = 0x1.2444f2p-4f;  // 2 sqrt(2 / pi), and 0.044715 times it
  for_each_vector(n, y, [&](auto at) {
    const f32x16 g = at(gate);
    const f32x16 twice_u = mul(g, fma(mul(g, g), splat(kCubic), splat(kTwiceRoot)));
    return mul(div(g, add(splat(1.0f), exp(sub(zero(), twice_u)))), at(up));
  });
}

static void relu2(const float* x, float* y, std::int64_t n) {
  for_each_vector(n, y, [&](auto at) {
    const f32x16 positive = max(zero(), at(x));
    return mul(positive, positive);
  });
}

static void scale(const float* x, float factor, float* y, std::int64_t n) {
  for_each_vector(n, y, [&](auto at) { return mul(splat(factor), at(x)); });
}

static inline f32x16 soft_cap(f32x16 x, f32x16 cap) { return mul(cap, tanh(div(x, cap))); }

static void soft_cap(const float* x, float cap, float* y, std::int64_t n) {
  for_each_vector(n, y, [&](auto at) { return soft_cap(at(x), splat(cap)); });
}

static void add_scaled(float factor, const float* x, float* y, std::int64_t n) {
  for_each_vector(n, y, [&](auto at) { return fma(splat(factor), at(x), at(y)); });
}

static void rms_norm(const float* x, const float* weight, float offset, float eps, int cols, float* y) {
  f32x16 squares = zero();
  int i = 0;
  for (; i + 16 <= cols; i += 16) {
    const f32x16 v = load(x + i);
    squares = fma(v, v, squares);
  }
  if (i < cols) {
    const f32x16 v = load_first(x + i, cols - i, 0.0f);
    squares = fma(v, v, squares);
  }
  const float mean = sum_lanes(squares) / static_cast<float>(cols);
  const f32x16 inverse = splat(1.0f / __builtin_sqrtf(mean + eps));
  for_each_vector(cols, y, [&](auto at) { return mul(mul(at(x), inverse), add(at(weight), splat(offset))); });
}

static void rope(float* x, const float* cos, const float* sin, int num_heads, int head_dim, int rotary_dim) {
  const int half = rotary_dim / 2;
  for (int head = 0; head < num_heads; ++head) {
    float* a = x + static_cast<std::int64_t>(head) * head_dim;
    float* b = a + half;
    int i = 0;
    for (; i + 16 <= half; i += 16) {
      const f32x16 va = load(a + i), vb = load(b + i), c = load(cos + i), s = load(sin + i);
      store(a + i, sub(mul(va, c), mul(vb, s)));
      store(b + i, add(mul(vb, c), mul(va, s)));
    }
    if (i < half) {
      const int n = half - i;
      const f32x16 va = load_first(a + i, n, 0.0f), vb = load_first(b + i, n, 0.0f);
      const f32x16 c = load_first(cos + i, n, 0.0f), s = load_first(sin + i, n, 0.0f);
      store_first(a + i, sub(mul(va, c), mul(vb, s)), n);
      store_first(b + i, add(mul(vb, c), mul(va, s)), n);
    }
  }
}

static float maximum(const float* x, std::int64_t n) {
  const float lowest = -__builtin_inff();
  f32x16 m = splat(lowest);
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) m = max(m, load(x + i));
  if (i < n) m = max(m, load_first(x + i, n - i, lowest));
  return max_lanes(m);
}

// y = exp(x - maximum) if y is given; returns the sum in 16 lanes and the tree.
static inline float sum_exp(const float* x, float max_value, float* y, std::int64_t n) {
  f32x16 sum = zero();
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const f32x16 e = exp(sub(load(x + i), splat(max_value)));
    if (y) store(y + i, e);
    sum = add(sum, e);
  }
  if (i < n) {
    const f32x16 e = exp(sub(load_first(x + i, n - i, -__builtin_inff()), splat(max_value)));
    if (y) store_first(y + i, e, n - i);
    sum = add(sum, e);
  }
  return sum_lanes(sum);
}

static void exp_shifted(const float* x, float shift, float factor, float* y, std::int64_t n) {
  for_each_vector(n, y, [&](auto at) { return exp(mul(sub(at(x), splat(shift)), splat(factor))); });
}

static void softmax(const float* x, float* y, int n) {
  const float sum = sum_exp(x, maximum(x, n), y, n);
  for_each_vector(n, y, [&](auto at) { return div(at(y), splat(sum)); });
}

static float log_sum_exp(const float* x, float max_value, std::int64_t n) {
  const double sum = sum_exp(x, max_value, nullptr, n);
  return static_cast<float>(static_cast<double>(max_value) + edgert::math::log(sum));
}
