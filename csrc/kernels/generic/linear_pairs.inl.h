// Products with several tokens by instructions that multiply two rows with two tokens, eight columns at a time. A group
// is unpacked and its rows paired once; then two pairs of tokens pass at a time, so that every register of weights that
// is loaded serves both. Included after generic/linear.inl.h and the row pairs of simd/.

constexpr int kPairsAtOnce = 2;

// The dots of one group with kPairs pairs of tokens: dots[token][run].
template <int kDots, int kPairs>
static inline void dots_of_pairs(const RowPairs (&rows)[8], const TokenInput* tokens, std::int64_t g,
                                 std::int64_t step_bytes, i32x16 (&dots)[2 * kPairs][kDots]) {
  constexpr int kSteps = 8 / kDots;
  EDGERT_UNROLL
  for (int d = 0; d < kDots; ++d) {
    PairSums sums[kPairs];
    EDGERT_UNROLL
    for (int p = 0; p < kPairs; ++p) sums[p] = no_pair_sums();
    EDGERT_UNROLL
    for (int step = d * kSteps; step < (d + 1) * kSteps; ++step) {
      EDGERT_UNROLL
      for (int p = 0; p < kPairs; ++p) {
        const std::int64_t column = g * step_bytes + 8 * step;
        sums[p] = pair_dot(sums[p], rows[step],
                           load_token_pair(tokens[2 * p].codes + column, tokens[2 * p + 1].codes + column));
      }
    }
    EDGERT_UNROLL
    for (int p = 0; p < kPairs; ++p) {
      dots[2 * p][d] = sums_of_first(sums[p]);
      dots[2 * p + 1][d] = sums_of_second(sums[p]);
    }
  }
}

template <class F, int kPairs>
static inline void multiply_pairs(const RowPairs (&rows)[8], const typename F::Scales::Group& group,
                                  const TokenInput* tokens, std::int64_t g, std::int64_t step_bytes, f32x16* acc) {
  using Scales = typename F::Scales;
  i32x16 dots[2 * kPairs][Scales::kDots];
  dots_of_pairs<Scales::kDots, kPairs>(rows, tokens, g, step_bytes, dots);
  EDGERT_UNROLL
  for (int t = 0; t < 2 * kPairs; ++t) {
    acc[t] = Scales::apply(group, dots[t], tokens[t].scales + g * Scales::kInputScales, tokens[t].sums[g], acc[t]);
  }
}

// An odd token at the end is paired with itself: its second result goes nowhere.
template <class F>
EDGERT_FLATTEN static void strip_times_pairs(const Strip<F>& strip, int num_groups, const LinearInput& x,
                                             int first_token, int num_tokens, const LinearOutput& y, int row) {
  using Codes = typename F::Codes;
  static_assert(kTileTokens % (2 * kPairsAtOnce) == 0);
  TokenInput tokens[kTileTokens];
  f32x16 acc[kTileTokens];
  const int num_pairs = (num_tokens + 1) / 2;
  const std::int64_t step = codes_step(x.tile_vectors);
  for (int t = 0; t < 2 * num_pairs; ++t) {
    tokens[t] = token_input<F>(x, first_token + (t < num_tokens ? t : num_tokens - 1));
    acc[t] = zero();
  }
  for (std::int64_t g = 0; g < num_groups; ++g) {
    prefetch_far(strip, g);
    Bytes quads[16];
    Codes::unpack(strip.codes, g, quads);
    RowPairs rows[8];
    EDGERT_UNROLL
    for (int i = 0; i < 8; ++i) rows[i] = pair_rows(quads[2 * i], quads[2 * i + 1]);
    const typename F::Scales::Group group = F::Scales::load_group(strip.scales, g);
    int pair = 0;
    for (; pair + kPairsAtOnce <= num_pairs; pair += kPairsAtOnce) {
      multiply_pairs<F, kPairsAtOnce>(rows, group, tokens + 2 * pair, g, step, acc + 2 * pair);
    }
    for (; pair < num_pairs; ++pair) multiply_pairs<F, 1>(rows, group, tokens + 2 * pair, g, step, acc + 2 * pair);
  }
  for (int t = 0; t < num_tokens; ++t) store(y.y + (first_token + t) * y.stride + row, acc[t]);
}

template <class... Formats>
static constexpr void set_pairs(KernelTable& table, FormatList<Formats...>) {
  ((table.linear[static_cast<int>(Formats::kFormat)] =
        LinearKernels{{{"tile", linear_by_tiles<Formats, strip_times_pairs<Formats>>, 2, kAnyTokens}}}),
   ...);
}

static constexpr KernelTable pair_table(const char* name) {
  KernelTable table{};
  table.name = name;
  set_pairs(table, QuantizedFormats{});
  return table;
}
