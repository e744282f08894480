// Matrix products with quantised weights, for every format: a template on its codes and scales.
//   acc[row] = fma(float(integer dot), scale_w * scale_x, acc[row])      groups in ascending order

// Where the parts of one strip begin.
template <class F>
struct Strip {
  using Codes = typename F::Codes;
  using Scales = typename F::Scales;
  const std::uint8_t* scales[Scales::kNumParts];
  const std::uint8_t* codes[Codes::kNumParts];

  Strip(const WeightView& w, int strip) {
    const std::int64_t index = strip, groups = w.groups;
    for (int i = 0; i < Scales::kNumParts; ++i) {
      constexpr auto& every = Scales::kPartGroups;
      scales[i] = w.parts[i] + index * ((groups + every[i] - 1) / every[i]) * Scales::kPartBytes[i];
    }
    for (int i = 0; i < Codes::kNumParts; ++i) {
      codes[i] = w.parts[Scales::kNumParts + i] + index * groups * Codes::kPartBytes[i];
    }
  }
  void codes_of_group(std::int64_t g, const std::uint8_t* (&out)[Codes::kNumParts]) const {
    for (int i = 0; i < Codes::kNumParts; ++i) out[i] = codes[i] + g * Codes::kPartBytes[i];
  }
};

// One token of the input.
struct TokenInput {
  const std::int8_t* codes;
  const float* scales;
  const GroupSums* sums;
};

template <class F>
static inline TokenInput token_input(const LinearInput& x, int token) {
  const std::int64_t row = x.vector_rows ? x.vector_rows[token] : token;
  return {x.codes + row * x.codes_stride, x.scales + row * x.group_stride * F::Scales::kInputScales,
          x.sums + row * x.group_stride};
}

// Adds the bias; rows of the last strip beyond the matrix become 0.
static inline void finish_rows(float* y, const float* bias, int num_rows) {
  if (bias) store(y, add(load(y), load(bias)));
  for (int row = num_rows; row < kStripRows; ++row) y[row] = 0.0f;
}

static inline int rows_of_strip(const WeightView& w, int strip) {
  const int left = w.rows - strip * kStripRows;
  return left < kStripRows ? left : kStripRows;
}

// Asks for the bytes that will be read some groups later; beyond the end of the tensor it does nothing.
static inline void prefetch(const std::uint8_t* p, int num_bytes) {
  for (int i = 0; i < num_bytes; i += 64) __builtin_prefetch(p + kPrefetchBytes + i);
}

// One token: nothing is unpacked, every byte of the weights is read once.
template <class F>
static inline void strip_times_token(const Strip<F>& strip, int num_groups, const TokenInput& x, float* y) {
  using Codes = typename F::Codes;
  using Scales = typename F::Scales;
  f32x16 acc = zero();
  for (int g = 0; g < num_groups; ++g) {
    const std::uint8_t* codes[Codes::kNumParts];
    strip.codes_of_group(g, codes);
    for (int i = 0; i < Codes::kNumParts; ++i) prefetch(codes[i], Codes::kPartBytes[i]);
    i32x16 dots[Scales::kDots];
    Codes::dots(codes, x.codes + static_cast<std::int64_t>(g) * kGroupColumns, x.sums[g], dots);
    acc = Scales::apply(Scales::load_group(strip.scales, g), dots, x.scales + g * Scales::kInputScales, x.sums[g], acc);
  }
  store(y, acc);
}

// Groups that are unpacked at a time, so that they stay in the first-level cache: 16 KiB.
constexpr int kPanelGroups = 16;
struct alignas(64) Panel {
  std::uint8_t quads[kPanelGroups * 16 * 64];
};

template <class F>
static inline void unpack_panel(const Strip<F>& strip, int first_group, int last_group, Panel& panel) {
  for (int g = first_group; g < last_group; ++g) {
    const std::uint8_t* codes[F::Codes::kNumParts];
    strip.codes_of_group(g, codes);
    Bytes quads[16];
    F::Codes::unpack(codes, quads);
    std::uint8_t* out = panel.quads + 1024 * (g - first_group);
    for (int q = 0; q < 16; ++q) store_bytes(out + 64 * q, quads[q]);
  }
}

// The dots of one group of a panel with kTokens tokens.
template <class F, int kTokens>
static inline void panel_dots(const std::uint8_t* quads, const TokenInput (&x)[kTokens], int g,
                              i32x16 (&dots)[kTokens][F::Scales::kDots]) {
  constexpr int kDots = F::Scales::kDots, kQuads = 16 / kDots, kMaxCode = F::Codes::kMaxCode;
  constexpr int kSafe = kDotCapacity / kMaxCode < kQuads ? (kDotCapacity / kMaxCode) : kQuads;
  const std::int64_t column = static_cast<std::int64_t>(g) * kGroupColumns;
  for (int d = 0; d < kDots; ++d) {
    if constexpr (F::Codes::kIsSigned) {
      for (int t = 0; t < kTokens; ++t) dots[t][d] = signed_start(activation_sum<kDots>(x[t].sums[g], d));
      for (int q = d * kQuads; q < (d + 1) * kQuads; ++q) {
        const Bytes w = load_bytes(quads + 64 * q);
        for (int t = 0; t < kTokens; ++t) dots[t][d] = signed_dot(dots[t][d], w, x[t].codes + column + 4 * q);
      }
    } else {
      for (int first = 0; first < kQuads; first += kSafe) {
        DotSum sums[kTokens];
        for (int t = 0; t < kTokens; ++t) sums[t] = no_sum();
        for (int q = d * kQuads + first; q < d * kQuads + first + kSafe; ++q) {
          const Bytes w = load_bytes(quads + 64 * q);
          for (int t = 0; t < kTokens; ++t) sums[t] = dot(sums[t], w, x[t].codes + column + 4 * q);
        }
        for (int t = 0; t < kTokens; ++t) dots[t][d] = first == 0 ? widen(sums[t]) : add(dots[t][d], widen(sums[t]));
      }
    }
  }
}

// A panel times kTokens tokens; between panels the accumulators lie in y.
template <class F, int kTokens>
static inline void panel_times_tokens(const Strip<F>& strip, const Panel& panel, int first_group, int last_group,
                                      const LinearInput& x, int first_token, const LinearOutput& y, int row) {
  using Scales = typename F::Scales;
  TokenInput tokens[kTokens];
  f32x16 acc[kTokens];
  for (int t = 0; t < kTokens; ++t) {
    tokens[t] = token_input<F>(x, first_token + t);
    acc[t] = first_group == 0 ? zero() : load(y.y + (first_token + t) * y.stride + row);
  }
  for (int g = first_group; g < last_group; ++g) {
    i32x16 dots[kTokens][Scales::kDots];
    panel_dots<F>(panel.quads + 1024 * (g - first_group), tokens, g, dots);
    const typename Scales::Group group = Scales::load_group(strip.scales, g);
    for (int t = 0; t < kTokens; ++t) {
      acc[t] = Scales::apply(group, dots[t], tokens[t].scales + g * Scales::kInputScales, tokens[t].sums[g], acc[t]);
    }
  }
  for (int t = 0; t < kTokens; ++t) store(y.y + (first_token + t) * y.stride + row, acc[t]);
}

template <class F>
static void strip_times_tokens(const Strip<F>& strip, int num_groups, const LinearInput& x, const LinearOutput& y,
                               int row) {
  Panel panel;
  for (int first = 0; first < num_groups; first += kPanelGroups) {
    const int last = first + kPanelGroups < num_groups ? first + kPanelGroups : num_groups;
    unpack_panel(strip, first, last, panel);
    int token = 0;
    for (; token + kTileTokens <= x.tokens; token += kTileTokens) {
      panel_times_tokens<F, kTileTokens>(strip, panel, first, last, x, token, y, row);
    }
    if constexpr (kTileTokens > 4) {
      for (; token + 4 <= x.tokens; token += 4) panel_times_tokens<F, 4>(strip, panel, first, last, x, token, y, row);
    }
    if constexpr (kTileTokens > 2) {
      for (; token + 2 <= x.tokens; token += 2) panel_times_tokens<F, 2>(strip, panel, first, last, x, token, y, row);
    }
    for (; token < x.tokens; ++token) panel_times_tokens<F, 1>(strip, panel, first, last, x, token, y, row);
  }
}

template <class F>
static void linear_quantized(const WeightView& w, const LinearInput& x, const LinearOutput& y, int first_strip,
                             int last_strip) {
  for (int s = first_strip; s < last_strip; ++s) {
    const Strip<F> strip(w, s);
    const int row = s * kStripRows;
    if (x.tokens == 1) {
      strip_times_token(strip, w.groups, token_input<F>(x, 0), y.y + row);
    } else {
      strip_times_tokens(strip, w.groups, x, y, row);
    }
    for (int t = 0; t < x.tokens; ++t) {
      finish_rows(y.y + t * y.stride + row, y.bias ? y.bias + row : nullptr, rows_of_strip(w, s));
    }
  }
}

// One row as float32. Slow and the same on every instruction set: an embedding row is read once a token.
template <class F>
static void dequantize_quantized(const WeightView& w, int row, float* y) {
  const Strip<F> strip(w, row / kStripRows);
  for (int column = 0; column < w.groups * kGroupColumns && column < (w.cols + 15) / 16 * 16; ++column) {
    const int g = column / kGroupColumns;
    const std::uint8_t* codes[F::Codes::kNumParts];
    strip.codes_of_group(g, codes);
    const int code = F::Codes::get(codes, row % kStripRows, column % kGroupColumns);
    y[column] = column < w.cols ? F::Scales::value(strip.scales, g, row % kStripRows, column % kGroupColumns, code) : 0;
  }
}
