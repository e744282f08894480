// Products with several tokens on a matrix unit. The unpacked codes of a group (16 quads x 16 rows x 4 columns) are a
// tile as they lie, and so are the activations of up to 16 tokens. The tile of their dots has a token in each row and
// 16 rows of the matrix in its lanes, so the float line is that of every other kernel.
// Included after generic/linear.inl.h and the tiles of simd/.

// How a group becomes tiles: kPanels panels of 16 quads of bytes, each multiplied in kDots runs of 64 / kDots columns.
// fold() writes the panels; apply() runs the float lines of one token on the dots (of panel p, run d: p * kDots + d).
// Here: plain codes, a dot for every run that the scales tell apart. True for all scales; the others below put more of
// the work into the bytes, where it is done once for all tokens.
template <class Codes, class Scales>
struct TileFolding {
  static constexpr int kPanels = 1, kDots = Scales::kDots;
  static constexpr bool kIsSigned = Codes::kIsSigned;
  using Group = typename Scales::Group;

  static inline Group fold(const Group& group, const Bytes (&codes)[16], std::uint8_t* panel) {
    EDGERT_UNROLL
    for (int q = 0; q < 16; ++q) store_bytes(panel + 64 * q, codes[q]);
    return group;
  }
  static inline f32x16 apply(const Group& group, const i32x16 (&dots)[kDots], const float* scale_x,
                             const GroupSums& sums, f32x16 acc) {
    return Scales::apply(group, dots, scale_x, sums, acc);
  }
};

// The offset goes into the bytes: 2 code - 15 for p4.
template <int kFactor, int kOffset, class Group>
static inline Group fold_offset(const Group& group, const Bytes (&codes)[16], std::uint8_t* panel) {
  EDGERT_UNROLL
  for (int q = 0; q < 16; ++q) store_bytes(panel + 64 * q, rescale_bytes<kFactor, kOffset>(codes[q]));
  return group;
}

template <class Codes, int kFactor, int kOffset>
struct TileFolding<Codes, GroupScales<kFactor, kOffset>> {
  static constexpr int kPanels = 1, kDots = 1;
  static constexpr bool kIsSigned = true;
  using Scales = GroupScales<1, 0>;
  using Group = Scales::Group;
  static_assert(Codes::kIsSigned ? kFactor == 1 && kOffset == 0 : kFactor * Codes::kMaxCode - kOffset <= 127);

  static inline Group fold(const typename GroupScales<kFactor, kOffset>::Group& group, const Bytes (&codes)[16],
                           std::uint8_t* panel) {
    return fold_offset<kFactor, kOffset>(Group{group.scale}, codes, panel);
  }
  static inline f32x16 apply(const Group& group, const i32x16 (&dots)[1], const float* scale_x, const GroupSums& sums,
                             f32x16 acc) {
    return Scales::apply(group, dots, scale_x, sums, acc);
  }
};

template <class Codes, int kOffset>
struct TileFolding<Codes, HalfGroupScales<kOffset>> {
  static constexpr int kPanels = 1, kDots = 2;
  static constexpr bool kIsSigned = true;
  using Scales = HalfGroupScales<0>;
  using Group = Scales::Group;
  static_assert(Codes::kIsSigned ? kOffset == 0 : Codes::kMaxCode - kOffset <= 127);

  static inline Group fold(const typename HalfGroupScales<kOffset>::Group& group, const Bytes (&codes)[16],
                           std::uint8_t* panel) {
    return fold_offset<1, kOffset>(Group{{group.scale[0], group.scale[1]}}, codes, panel);
  }
  static inline f32x16 apply(const Group& group, const i32x16 (&dots)[2], const float* scale_x, const GroupSums& sums,
                             f32x16 acc) {
    return Scales::apply(group, dots, scale_x, sums, acc);
  }
};

// q4_k, q5_k: code * subscale = 8 (code * high) + code * low, with the upper and the lower three bits of the sub-scale;
// both products are unsigned bytes.
template <class Codes>
struct TileFolding<Codes, SuperMinScales> {
  static constexpr int kPanels = 2, kDots = 1;
  static constexpr bool kIsSigned = false;
  static_assert(!Codes::kIsSigned && Codes::kMaxCode * 7 <= 255);

  struct Group {
    f32x16 scale, minimum;
    i32x16 submins;
  };
  static inline Group fold(const SuperMinScales::Group& group, const Bytes (&codes)[16], std::uint8_t* panel) {
    EDGERT_UNROLL
    for (int half = 0; half < 2; ++half) {
      const i32x16 high = twice(shift_right<3>(group.subscale[half])), low = twice(and_int(group.subscale[half], 7));
      EDGERT_UNROLL
      for (int q = 8 * half; q < 8 * half + 8; ++q) {
        store_bytes(panel + 64 * q, scaled_bytes(codes[q], high));
        store_bytes(panel + 1024 + 64 * q, scaled_bytes(codes[q], low));
      }
    }
    return {group.scale, group.minimum, pair(group.submin[0], group.submin[1])};
  }
  static inline f32x16 apply(const Group& group, const i32x16 (&dots)[2], const float* scale_x, const GroupSums& sums,
                             f32x16 acc) {
    const f32x16 step_x = splat(*scale_x);
    acc = fma(to_float(add(shift_left<3>(dots[0]), dots[1])), mul(group.scale, step_x), acc);
    const i32x16 minima = pair_dot(group.submins, -sums.of32[0], -sums.of32[1]);
    return fma(to_float(minima), mul(group.minimum, step_x), acc);
  }
};

// q2_k: code * subscale is below 128.
template <class Codes>
struct TileFolding<Codes, SuperMinNibbleScales> {
  static constexpr int kPanels = 1, kDots = 1;
  static constexpr bool kIsSigned = false;
  static_assert(!Codes::kIsSigned && Codes::kMaxCode * 15 <= 255);

  struct Group {
    f32x16 scale, minimum;
    i32x16 submins[2];
  };
  static inline Group fold(const SuperMinNibbleScales::Group& group, const Bytes (&codes)[16], std::uint8_t* panel) {
    EDGERT_UNROLL
    for (int q = 0; q < 16; ++q) {
      store_bytes(panel + 64 * q, scaled_bytes(codes[q], twice(group.subscale[q / 4])));
    }
    return {
        group.scale, group.minimum, {pair(group.submin[0], group.submin[1]), pair(group.submin[2], group.submin[3])}};
  }
  static inline f32x16 apply(const Group& group, const i32x16 (&dots)[1], const float* scale_x, const GroupSums& sums,
                             f32x16 acc) {
    const f32x16 step_x = splat(*scale_x);
    acc = fma(to_float(dots[0]), mul(group.scale, step_x), acc);
    const i32x16 minima = add(pair_dot(group.submins[0], -sums.of16[0], -sums.of16[1]),
                              pair_dot(group.submins[1], -sums.of16[2], -sums.of16[3]));
    return fma(to_float(minima), mul(group.minimum, step_x), acc);
  }
};

// q3_k, q6_k, iq4_xs: (code - offset) * subscale = 128 high + low, two signed bytes.
template <class Codes, int kRuns, int kOffset>
struct TileFolding<Codes, SuperScales<kRuns, kOffset>> {
  static constexpr int kPanels = 2, kDots = 1;
  static constexpr bool kIsSigned = true;
  static_assert(Codes::kIsSigned ? kOffset == 0 : Codes::kMaxCode - kOffset <= 127 && kOffset <= 128);

  struct Group {
    f32x16 scale;
  };
  static inline Group fold(const typename SuperScales<kRuns, kOffset>::Group& group, const Bytes (&codes)[16],
                           std::uint8_t* panel) {
    EDGERT_UNROLL
    for (int q = 0; q < 16; ++q) {
      const i32x16 factor = twice(group.subscale[q / (16 / kRuns)]);
      const SplitBytes products = split_products(rescale_bytes<1, kOffset>(codes[q]), factor);
      store_bytes(panel + 64 * q, products.high);
      store_bytes(panel + 1024 + 64 * q, products.low);
    }
    return {group.scale};
  }
  static inline f32x16 apply(const Group& group, const i32x16 (&dots)[2], const float* scale_x, const GroupSums&,
                             f32x16 acc) {
    return fma(to_float(add(shift_left<7>(dots[0]), dots[1])), mul(group.scale, splat(*scale_x)), acc);
  }
};

template <class F>
using FoldingOf = TileFolding<typename F::Codes, typename F::Scales>;

constexpr int kTokensOfTile = 16;

// Some groups of a strip, folded: 16 KB, which stay in the first-level cache while every tile of tokens passes.
template <class Folding>
struct TilePanels {
  static constexpr int kGroups = 16 / Folding::kPanels;
  alignas(64) std::uint8_t bytes[kGroups][Folding::kPanels * 1024];
  typename Folding::Group groups[kGroups];
};

template <class F>
static inline void fold_groups(const Strip<F>& strip, int first, int count, TilePanels<FoldingOf<F>>& panels) {
  using Codes = typename F::Codes;
  for (int i = 0; i < count; ++i) {
    const int g = first + i;
    prefetch_far(strip, g);
    Bytes codes[16];
    Codes::unpack(strip.codes, g, codes);
    if constexpr (Codes::kIsSigned) {
      EDGERT_UNROLL
      for (Bytes& quad : codes) quad = plain_bytes(quad);
    }
    panels.groups[i] = FoldingOf<F>::fold(F::Scales::load_group(strip.scales, g), codes, panels.bytes[i]);
  }
}

// The dots of one group with the tokens of a tile, in tiles 0 to kProducts - 1. Activations: `stride` apart.
template <class Folding, int kProducts, int kProduct = 0>
static inline void multiply_tiles(const std::uint8_t* panels, const std::int8_t* x, std::int64_t stride) {
  constexpr int kRun = kProduct % Folding::kDots, kColumns = 64 / Folding::kDots;
  constexpr int kA = 4 + kRun % 2, kB = 6 + kProduct % 2;
  static_assert(kProducts <= 4 && (Folding::kPanels == 1 || Folding::kDots == 1));
  if constexpr (kProduct < Folding::kDots) tile_load<kA>(x + kColumns * kRun, stride);
  tile_load<kB>(reinterpret_cast<const std::int8_t*>(panels) + 64 * 16 / Folding::kDots * kProduct, 64);
  tile_zero<kProduct>();
  tile_dot<kProduct, kA, kB, Folding::kIsSigned>();
  if constexpr (kProduct + 1 < kProducts) multiply_tiles<Folding, kProducts, kProduct + 1>(panels, x, stride);
}
template <int kProducts, int kProduct = 0>
static inline void store_tiles(std::int32_t (&dots)[kProducts][256]) {
  tile_store<kProduct>(dots[kProduct]);
  if constexpr (kProduct + 1 < kProducts) store_tiles<kProducts, kProduct + 1>(dots);
}

// Up to 16 tokens and their activations of the groups of a panel.
struct TileInput {
  const std::int8_t* codes;  // of the first token and the first group
  std::int64_t stride;       // between tokens
  TokenInput tokens[kTokensOfTile];
};

// The float lines of one token of a tile for one group.
template <class F, int kProducts>
[[gnu::always_inline]] static inline f32x16 apply_token(const typename FoldingOf<F>::Group& group,
                                                        const std::int32_t (&dots)[kProducts][256], int t,
                                                        std::int64_t g, const TokenInput& token, f32x16 acc) {
  i32x16 products[kProducts];
  EDGERT_UNROLL
  for (int p = 0; p < kProducts; ++p) products[p] = load_ints(dots[p] + 16 * t);
  return FoldingOf<F>::apply(group, products, token.scales + g * F::Scales::kInputScales, token.sums[g], acc);
}

// Adds the products with `num_groups` groups to sums_of_rows[token][row]. kIsWhole: the tile has all its 16 tokens, and
// their sums stay in registers. The matrix unit works ahead of the float lines, so that neither waits for the other.
template <class F, bool kIsWhole>
static inline void tile_times_panels(const TilePanels<FoldingOf<F>>& panels, int first_group, int num_groups,
                                     const TileInput& x, int num_tokens, float* sums_of_rows) {
  using Folding = FoldingOf<F>;
  constexpr int kProducts = Folding::kPanels * Folding::kDots;
  constexpr int kAhead = kProducts == 1 ? 2 : 1, kSlots = 2 * kAhead;
  alignas(64) std::int32_t dots[kSlots][kProducts][256];
  f32x16 acc[kTokensOfTile];
  EDGERT_UNROLL
  for (int t = 0; t < kTokensOfTile; ++t) acc[t] = load(sums_of_rows + 16 * t);
  const auto multiply = [&](int i) {
    multiply_tiles<Folding, kProducts>(panels.bytes[i], x.codes + 64 * i, x.stride);
    store_tiles(dots[i % kSlots]);
  };
  for (int i = 0; i < kAhead && i < num_groups; ++i) multiply(i);
  for (int i = 0; i < num_groups; ++i) {
    if (i + kAhead < num_groups) multiply(i + kAhead);
    const typename Folding::Group group = panels.groups[i];
    const auto& products = dots[i % kSlots];
    const std::int64_t g = first_group + i;
    if constexpr (kIsWhole) {
      EDGERT_UNROLL
      for (int t = 0; t < kTokensOfTile; ++t) acc[t] = apply_token<F>(group, products, t, g, x.tokens[t], acc[t]);
    } else {
      for (int t = 0; t < num_tokens; ++t) acc[t] = apply_token<F>(group, products, t, g, x.tokens[t], acc[t]);
    }
  }
  EDGERT_UNROLL
  for (int t = 0; t < kTokensOfTile; ++t) store(sums_of_rows + 16 * t, acc[t]);
}

// Copies of the activations of a tile whose tokens are not evenly spaced (experts take what the router gives them). The
// rows are an odd number of lines apart, so that they do not compete for the same places of a cache.
struct GatheredTokens {
  static constexpr std::int64_t kStride = 1024 + 64;
  alignas(64) std::int8_t codes[kTokensOfTile * kStride];
};

template <class F>
static inline TileInput tile_input(const LinearInput& x, int first_token, int num_tokens, int first_group,
                                   int num_groups, GatheredTokens& gathered) {
  TileInput tile;
  const std::int64_t offset = std::int64_t{first_group} * kGroupColumns;
  for (int t = 0; t < num_tokens; ++t) tile.tokens[t] = token_input<F>(x, first_token + t);
  tile.codes = tile.tokens[0].codes + offset;
  tile.stride = num_tokens > 1 ? tile.tokens[1].codes - tile.tokens[0].codes : 64;
  bool is_even = true;
  for (int t = 2; t < num_tokens; ++t) {
    is_even &= tile.tokens[t].codes - tile.tokens[t - 1].codes == tile.stride;
  }
  if (is_even) return tile;
  for (int t = 0; t < num_tokens; ++t) {
    __builtin_memcpy(gathered.codes + t * GatheredTokens::kStride, tile.tokens[t].codes + offset,
                     static_cast<std::size_t>(num_groups) * kGroupColumns);
  }
  tile.codes = gathered.codes;
  tile.stride = GatheredTokens::kStride;
  return tile;
}

// Tokens of a block: so many that folding a strip is cheap beside them, and so few that their activations stay in the
// second-level cache from strip to strip.
constexpr int kMaxBlockTokens = 256;
constexpr std::int64_t kBlockBytes = 1 << 20;

static inline int tokens_per_block(int tokens, std::int64_t cols) {
  std::int64_t most = kBlockBytes / cols / kTokensOfTile * kTokensOfTile;
  if (most > kMaxBlockTokens) most = kMaxBlockTokens;
  if (most < 2 * kTokensOfTile) most = 2 * kTokensOfTile;
  const int blocks = static_cast<int>((tokens + most - 1) / most);
  return ((tokens + blocks - 1) / blocks + kTokensOfTile - 1) / kTokensOfTile * kTokensOfTile;
}

// The last tile of a block begins early enough to be a whole one: what it shares with the one before gets the same bits
// again. Only a block below 16 tokens has a tile of fewer.
template <class F>
static void strip_times_block(const WeightView& w, int strip_index, const LinearInput& x, int first_token,
                              int num_tokens, const LinearOutput& y) {
  const Strip<F> strip(w, strip_index);
  const int num_groups = w.groups;
  using Panels = TilePanels<FoldingOf<F>>;
  const int tile_tokens = num_tokens < kTokensOfTile ? num_tokens : kTokensOfTile;
  const int num_tiles = (num_tokens + kTokensOfTile - 1) / kTokensOfTile;
  const auto token_of_tile = [&](int tile) {
    const int last = num_tokens - tile_tokens;
    return first_token + (tile * kTokensOfTile < last ? tile * kTokensOfTile : last);
  };
  Panels panels;
  GatheredTokens gathered;
  alignas(64) float sums_of_rows[kMaxBlockTokens * kStripRows];
  for (int i = 0; i < num_tiles * kTokensOfTile; ++i) store(sums_of_rows + kStripRows * i, zero());

  for (int first = 0; first < num_groups; first += Panels::kGroups) {
    const int count = num_groups - first < Panels::kGroups ? num_groups - first : Panels::kGroups;
    fold_groups<F>(strip, first, count, panels);
    for (int tile = 0; tile < num_tiles; ++tile) {
      const TileInput input = tile_input<F>(x, token_of_tile(tile), tile_tokens, first, count, gathered);
      float* sums = sums_of_rows + kStripRows * kTokensOfTile * tile;
      if (tile_tokens == kTokensOfTile) {
        tile_times_panels<F, true>(panels, first, count, input, tile_tokens, sums);
      } else {
        tile_times_panels<F, false>(panels, first, count, input, tile_tokens, sums);
      }
    }
  }
  for (int tile = 0; tile < num_tiles; ++tile) {
    for (int t = 0; t < tile_tokens; ++t) {
      const int token = token_of_tile(tile) + t;
      store(y.y + token * y.stride + strip_index * kStripRows,
            load(sums_of_rows + kStripRows * (kTokensOfTile * tile + t)));
      finish_rows(w, x, y, strip_index, token);
    }
  }
}

// The tiles are configured here and released at the end: a thread that does other work in between, or that another
// library has used the tiles on, needs to know nothing of them.
template <class F>
static void linear_tiles(const WeightView& w, const LinearInput& x, const LinearOutput& y, int first_strip,
                         int last_strip) {
  const int block = tokens_per_block(x.tokens, w.cols);
  for (int first = 0; first < x.tokens; first += block) {
    const int num_tokens = x.tokens - first < block ? x.tokens - first : block;
    const TileScope scope(num_tokens < kTokensOfTile ? num_tokens : kTokensOfTile, 64 / FoldingOf<F>::kDots);
    for (int s = first_strip; s < last_strip; ++s) {
      strip_times_block<F>(w, s, x, first, num_tokens, y);
    }
  }
}

template <class... Formats>
static constexpr void set_tiles(KernelTable& table, FormatList<Formats...>) {
  ((table.linear[static_cast<int>(Formats::kFormat)] = LinearKernels{{{"tile", linear_tiles<Formats>, 2, kAnyTokens}}}),
   ...);
}

static constexpr KernelTable tile_table(const char* name) {
  KernelTable table{};
  table.name = name;
  set_tiles(table, QuantizedFormats{});
  return table;
}
