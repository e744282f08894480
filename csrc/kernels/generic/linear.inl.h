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
      codes[i] = w.parts[Scales::kNumParts + i] + index * strip_part_bytes<Codes>(i, groups);
    }
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
  const std::int64_t row = vector_of(x, token);
  return {x.codes + codes_offset(row, x.tile_vectors, x.codes_stride),
          x.scales + row * x.group_stride * F::Scales::kInputScales, x.sums + row * x.group_stride};
}

static inline int rows_of_strip(const WeightView& w, int strip) {
  const int left = w.rows - strip * kStripRows;
  return left < kStripRows ? left : kStripRows;
}

// y[row] = fma(value, x[column], y[row]). Rows take turns, so that none waits for its own sum.
static inline void add_outliers(const WeightView& w, int strip, const float* x, float* y) {
  for (std::uint32_t i = w.outlier_starts[strip]; i < w.outlier_starts[strip + 1]; ++i) {
    const Outlier outlier = w.outliers[i];
    y[outlier.row] = __builtin_fmaf(outlier.value, x[outlier.column], y[outlier.row]);
  }
}

// What follows the dots of a strip and a token, in every kernel: outliers, then the bias; rows of the last strip beyond
// the matrix become 0.
static inline void finish_rows(const WeightView& w, const LinearInput& x, const LinearOutput& y, int strip, int token) {
  const int row = strip * kStripRows, num_rows = rows_of_strip(w, strip);
  float* out = y.y + token * y.stride + row;
  if (w.outlier_starts) {
    add_outliers(w, strip, x.values + vector_of(x, token) * x.values_stride, out);
  }
  if (y.bias) store(out, add(load(out), load(y.bias + row)));
  for (int i = num_rows; i < kStripRows; ++i) out[i] = 0.0f;
}

// Asks for part kPart of group g and those after it, into the cache of a level: 3 the first, 2 the second. Beyond the
// end of the tensor it asks for bytes that nobody reads: harmless. Always inline: gcc takes a function that only
// prefetches for one without effect, and drops calls of it.
template <int kLevel, class Parts, int kPart = 0>
[[gnu::always_inline]] static inline void prefetch_group(const std::uint8_t* const parts[], std::int64_t g) {
  constexpr int kBytes = Parts::kPartBytes[kPart], kGroups = part_groups<Parts>(kPart);
  EDGERT_UNROLL
  for (int i = 0; i < kBytes / kGroups; i += 64) __builtin_prefetch(parts[kPart] + g * kBytes / kGroups + i, 0, kLevel);
  if constexpr (kPart + 1 < Parts::kNumParts) prefetch_group<kLevel, Parts, kPart + 1>(parts, g);
}

template <class Codes>
constexpr int group_bytes() {
  int num_bytes = 0;
  for (int i = 0; i < Codes::kNumParts; ++i) num_bytes += Codes::kPartBytes[i] / part_groups<Codes>(i);
  return num_bytes;
}

template <class Codes>
constexpr int widest_part() {
  int widest = 0;
  for (int i = 0; i < Codes::kNumParts; ++i) {
    const int num_bytes = Codes::kPartBytes[i] / part_groups<Codes>(i);
    if (num_bytes > widest) widest = num_bytes;
  }
  return widest;
}

// Far ahead, into the second-level cache: the first one is too small for all that a core must have under way.
template <class F>
[[gnu::always_inline]] static inline void prefetch_far(const Strip<F>& strip, std::int64_t g) {
  constexpr int kAhead = kFarBytes / group_bytes<typename F::Codes>();
  prefetch_group<2, typename F::Codes>(strip.codes, g + kAhead);
  prefetch_group<2, typename F::Scales>(strip.scales, g + kAhead);
}

// Whether a group lies in parts of few bytes.
template <class Codes>
constexpr bool kIsThin = widest_part<Codes>() < 512;

// For one token. The hardware sees a run of whole bytes by itself, one of nibbles with some help. Where a group lies in
// thin parts it needs all of it, and in two steps: from memory, and then from the second-level cache. Strips that are
// walked side by side gain nothing by the second step.
template <class F, int kStrips>
[[gnu::always_inline]] static inline void prefetch_for_one(const Strip<F>& strip, std::int64_t g) {
  using Codes = typename F::Codes;
  constexpr int kNear = (kIsThin<Codes> ? 2 : 1) * kNearBytes / group_bytes<Codes>();
  if constexpr (kIsThin<Codes> || kStrips > 1) prefetch_far(strip, g);
  if constexpr (widest_part<Codes>() < 1024 && kStrips == 1) prefetch_group<3, Codes>(strip.codes, g + kNear);
}

// So many strips side by side make four runs of codes; more runs than that are too many.
template <class F>
constexpr int kWideStrips = F::Codes::kNumParts <= 2 ? 4 / F::Codes::kNumParts : 1;

// One token: nothing is unpacked, every byte of the weights is read once. Strips that are walked side by side are so
// many more runs of bytes that come from memory at the same time.
template <class F, int kStrips>
EDGERT_FLATTEN static inline void strips_times_token(const WeightView& w, int first_strip, const TokenInput& x,
                                                     std::int64_t step, float* y) {
  using Codes = typename F::Codes;
  using Scales = typename F::Scales;
  const auto walk = [&]<std::size_t... s>(std::index_sequence<s...>) {
    const Strip<F> strips[kStrips] = {Strip<F>(w, first_strip + static_cast<int>(s))...};
    f32x16 acc[kStrips] = {((void)s, zero())...};
    for (int g = 0; g < w.groups; ++g) {
      const auto add_group = [&](const Strip<F>& strip, f32x16 sum) __attribute__((always_inline)) {
        // A single thin part is soon multiplied: p2 is a tenth faster where its own loads go first. Others lose by it.
        constexpr bool kLoadsFirst = kIsThin<Codes> && Codes::kNumParts == 1 && Scales::kDots == 1;
        if constexpr (!kLoadsFirst) prefetch_for_one<F, kStrips>(strip, g);
        i32x16 dots[Scales::kDots];
        Codes::dots(strip.codes, g, x.codes + g * step, x.sums[g], dots);
        if constexpr (kLoadsFirst) {
          asm volatile("" ::: "memory");
          prefetch_for_one<F, kStrips>(strip, g);
        }
        return Scales::apply(Scales::load_group(strip.scales, g), dots, x.scales + g * Scales::kInputScales, x.sums[g],
                             sum);
      };
      ((acc[s] = add_group(strips[s], acc[s])), ...);
    }
    (store(y + kStripRows * s, acc[s]), ...);
  };
  walk(std::make_index_sequence<kStrips>());
}

// Several tokens: a group is unpacked into registers once, then multiplied with every token of a tile. The tile is
// long enough to make the unpacking cheap, and short enough for the second-level cache.
constexpr int kTileTokens = 64;

template <class F>
EDGERT_FLATTEN static void strip_times_tokens(const Strip<F>& strip, int num_groups, const LinearInput& x,
                                              int first_token, int num_tokens, const LinearOutput& y, int row) {
  using Codes = typename F::Codes;
  using Scales = typename F::Scales;
  TokenInput tokens[kTileTokens];
  f32x16 acc[kTileTokens];
  for (int t = 0; t < num_tokens; ++t) {
    tokens[t] = token_input<F>(x, first_token + t);
    acc[t] = zero();
  }
  const std::int64_t step = codes_step(x.tile_vectors);
  for (std::int64_t g = 0; g < num_groups; ++g) {
    prefetch_far(strip, g);
    Bytes quads[16];
    Codes::unpack(strip.codes, g, quads);
    const typename Scales::Group group = Scales::load_group(strip.scales, g);
    for (int t = 0; t < num_tokens; ++t) {
      const TokenInput& token = tokens[t];
      i32x16 dots[Scales::kDots];
      unpacked_dots<Codes>(quads, token.codes + g * step, token.sums[g], dots);
      acc[t] = Scales::apply(group, dots, token.scales + g * Scales::kInputScales, token.sums[g], acc[t]);
    }
  }
  for (int t = 0; t < num_tokens; ++t) store(y.y + (first_token + t) * y.stride + row, acc[t]);
}

template <class F, int kStrips>
static void linear_one(const WeightView& w, const LinearInput& x, const LinearOutput& y, int first_strip,
                       int last_strip) {
  const TokenInput token = token_input<F>(x, 0);
  const std::int64_t step = codes_step(x.tile_vectors);
  int s = first_strip;
  for (; s + kStrips <= last_strip; s += kStrips) {
    strips_times_token<F, kStrips>(w, s, token, step, y.y + s * kStripRows);
  }
  for (; s < last_strip; ++s) strips_times_token<F, 1>(w, s, token, step, y.y + s * kStripRows);
  for (s = first_strip; s < last_strip; ++s) finish_rows(w, x, y, s, 0);
}

// Any number of tokens, a tile at a time by `kMultiply`.
template <class F, auto kMultiply>
static void linear_by_tiles(const WeightView& w, const LinearInput& x, const LinearOutput& y, int first_strip,
                            int last_strip) {
  for (int s = first_strip; s < last_strip; ++s) {
    const Strip<F> strip(w, s);
    const int row = s * kStripRows;
    for (int first = 0; first < x.tokens; first += kTileTokens) {
      const int left = x.tokens - first;
      kMultiply(strip, w.groups, x, first, left < kTileTokens ? left : kTileTokens, y, row);
    }
    for (int t = 0; t < x.tokens; ++t) finish_rows(w, x, y, s, t);
  }
}

// One row as float32. Slow and the same on every instruction set: an embedding row is read once a token.
template <class F>
static void dequantize_quantized(const WeightView& w, int row, float* y) {
  const Strip<F> strip(w, row / kStripRows);
  for (int column = 0; column < w.groups * kGroupColumns && column < (w.cols + 15) / 16 * 16; ++column) {
    const int g = column / kGroupColumns;
    const int code = F::Codes::get(strip.codes, g, row % kStripRows, column % kGroupColumns);
    y[column] = column < w.cols ? F::Scales::value(strip.scales, g, row % kStripRows, column % kGroupColumns, code) : 0;
  }
  if (!w.outlier_starts) return;
  for (std::uint32_t i = w.outlier_starts[row / kStripRows]; i < w.outlier_starts[row / kStripRows + 1]; ++i) {
    if (w.outliers[i].row == row % kStripRows) y[w.outliers[i].column] += w.outliers[i].value;
  }
}
