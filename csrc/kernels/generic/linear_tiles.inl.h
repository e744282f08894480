// Products with several tokens on a matrix unit. The unpacked codes of a group (16 quads x 16 rows x 4 columns) are a
// tile as they lie, and so are the activations of up to 16 tokens. The tile of their dots has a token in each row and
// 16 rows of the matrix in its lanes, so the float line is that of every other kernel.
// Included after generic/functions.inl.h, generic/linear.inl.h, generic/tile_values.inl.h and the tiles of simd/.

// A dot of a tile below 2^22. It becomes a float by two additions: between the instructions of tiles a conversion waits
// for the one port that the multiply-adds need, an addition does not.
struct TileDot {
  i32x16 v;
};
static inline TileDot sub(TileDot a, i32x16 b) { return {sub(a.v, b)}; }
static inline f32x16 to_float(TileDot a) {
  return sub(from_bits(add(a.v, splat_int(kRoundingMagicBits))), splat(kRoundingMagic));
}

// How a group becomes tiles: kPanels panels of 16 quads of bytes, each multiplied in kDots runs of 64 / kDots columns.
// fold() writes the panels; apply() runs the float lines of one token on the dots (of panel p, run d: p * kDots + d).
// Here: the bytes of unpack_tile, a dot for every run that the scales tell apart. True for all scales; the others below
// put more of the work into the bytes, where it is done once for all tokens.
template <class Codes, class Scales>
struct TileFolding {
  using Plain = typename GridOf<Scales>::Plain;
  static constexpr int kPanels = 1, kDots = Plain::kDots;
  static constexpr bool kIsSigned = are_tile_values_signed<Codes, Scales>();
  using Group = typename Plain::Group;

  static inline Group fold(const std::uint8_t* const scales[], int g, const Bytes (&codes)[16], std::uint8_t* panel) {
    EDGERT_UNROLL
    for (int q = 0; q < 16; ++q) store_bytes(panel + 64 * q, codes[q]);
    return Plain::load_group(scales, g);
  }
  static inline f32x16 apply(const Group& group, const i32x16 (&dots)[kDots], const float* scale_x,
                             const GroupSums& sums, f32x16 acc) {
    static_assert(64 / kDots * 128 * 127 < 1 << 22);
    TileDot below[kDots];
    EDGERT_UNROLL
    for (int d = 0; d < kDots; ++d) below[d] = {dots[d]};
    return Plain::apply(group, below, scale_x, sums, acc);
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
    IntPairs submins;
  };
  static inline Group fold(const std::uint8_t* const scales[], int g, const Bytes (&codes)[16], std::uint8_t* panel) {
    const SuperMinScales::Group group = SuperMinScales::load_group(scales, g);
    EDGERT_UNROLL
    for (int half = 0; half < 2; ++half) {
      const i32x16 high = twice(shift_right<3>(group.subscale[half])), low = twice(and_int(group.subscale[half], 7));
      EDGERT_UNROLL
      for (int q = 8 * half; q < 8 * half + 8; ++q) {
        store_bytes(panel + 64 * q, scaled_bytes(codes[q], high));
        store_bytes(panel + 1024 + 64 * q, scaled_bytes(codes[q], low));
      }
    }
    return {group.scale, group.minimum, group.submins};
  }
  static inline f32x16 apply(const Group& group, const i32x16 (&dots)[2], const float* scale_x, const GroupSums& sums,
                             f32x16 acc) {
    acc = fma(to_float(add(shift_left<3>(dots[0]), dots[1])), mul(group.scale, splat(*scale_x)), acc);
    return SuperMinScales::subtract_minima(group.minimum, group.submins, *scale_x, sums, acc);
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
    IntPairs submins[2];
  };
  static inline Group fold(const std::uint8_t* const scales[], int g, const Bytes (&codes)[16], std::uint8_t* panel) {
    const SuperMinNibbleScales::Group group = SuperMinNibbleScales::load_group(scales, g);
    EDGERT_UNROLL
    for (int q = 0; q < 16; ++q) {
      store_bytes(panel + 64 * q, scaled_bytes(codes[q], twice(group.subscale[q / 4])));
    }
    return {group.scale, group.minimum, {group.submins[0], group.submins[1]}};
  }
  static inline f32x16 apply(const Group& group, const i32x16 (&dots)[1], const float* scale_x, const GroupSums& sums,
                             f32x16 acc) {
    acc = fma(to_float(TileDot{dots[0]}), mul(group.scale, splat(*scale_x)), acc);
    return SuperMinNibbleScales::subtract_minima(group.minimum, group.submins, *scale_x, sums, acc);
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
  static inline Group fold(const std::uint8_t* const scales[], int g, const Bytes (&codes)[16], std::uint8_t* panel) {
    const typename SuperScales<kRuns, kOffset>::Group group = SuperScales<kRuns, kOffset>::load_group(scales, g);
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

constexpr int kTokensOfTile = kTileVectors;
constexpr std::int64_t kTileStep = kTokensOfTile * kGroupColumns;

// Some groups of a strip, folded: 16 KB, which stay in the first-level cache. Group g is at g % kGroups.
template <class Folding>
struct TilePanels {
  static constexpr int kGroups = 16 / Folding::kPanels;
  alignas(64) std::uint8_t bytes[kGroups][Folding::kPanels * 1024];
  typename Folding::Group groups[kGroups];
};

template <class F>
[[gnu::always_inline]] static inline void fold_group(const Strip<F>& strip, int g, TilePanels<FoldingOf<F>>& panels) {
  const int i = g % TilePanels<FoldingOf<F>>::kGroups;
  Bytes codes[16];
  unpack_tile<F>(strip.codes, g, codes);
  panels.groups[i] = FoldingOf<F>::fold(strip.scales, g, codes, panels.bytes[i]);
}

// Tiles of up to 16 tokens, with their activations of the groups of a panel.
struct TileInput {
  const std::int8_t* codes;  // of the first token and the first group; groups are kTileStep apart
  std::int64_t shift;        // between tiles
  const TokenInput* tokens;  // kTokensOfTile for each tile
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

// The matrix unit works product by product, a few ahead of the float lines: while group i is added, a product of i + 1
// is stored, one of i + 2 multiplied and one of i + 3 loaded, be they of the next tile, so that no instruction waits
// for the one before it. Products take the tiles 0 to 3 in turn for their sums, and two tiles each for activations and
// panels.
template <class Folding>
class TileProducts {
 public:
  static constexpr int kOfGroup = Folding::kPanels * Folding::kDots;
  static constexpr int kSlots = kOfGroup == 1 ? 4 : 2;  // groups whose dots are kept
  static_assert(4 % kOfGroup == 0 && (Folding::kPanels == 1 || Folding::kDots == 1));

  TileProducts(const TilePanels<Folding>& panels, int first_group, int num_groups, const TileInput& x, int num_tiles)
      : panels_(panels), first_group_(first_group), num_groups_(num_groups), num_tiles_(num_tiles), x_(x) {}

  // Begins with the first group of a tile; after step(i) product i + 1 is stored. i % 4 == kTile
  [[gnu::always_inline]] inline void start(int tile) {
    tile_zero<0>(), tile_zero<1>(), tile_zero<2>(), tile_zero<3>();
    tile_ = tile;
    group_ = 0;
    load<0>();
    multiply<0>();
    load<1>();
    multiply<1>();
    store<0>(0);
    load<2>();
  }
  template <int kTile>
  [[gnu::always_inline]] inline void step(int i) {
    load<(kTile + 3) % 4>();
    multiply<(kTile + 2) % 4>();
    store<(kTile + 1) % 4>(i + 1);
  }
  const std::int32_t (&dots(int group) const)[kOfGroup][256] { return dots_[group % kSlots]; }

 private:
  template <int kTile>
  static constexpr int kA =
      4 + (Folding::kPanels == 2 ? kTile / 2 : kTile) % 2;  // both panels of a group have the same
  template <int kTile>
  static constexpr int kB = 6 + kTile % 2;

  // The next product; behind the last tile that of the one before, for nothing.
  template <int kTile>
  [[gnu::always_inline]] inline void load() {
    constexpr int kProduct = kTile % kOfGroup, kColumns = 64 / Folding::kDots;
    if constexpr (kProduct < Folding::kDots) {
      tile_load<kA<kTile>>(x_.codes + x_.shift * tile_ + kTileStep * group_ + kColumns * kProduct, kGroupColumns);
    }
    const std::uint8_t* panel = panels_.bytes[(first_group_ + group_) % TilePanels<Folding>::kGroups];
    tile_load<kB<kTile>>(reinterpret_cast<const std::int8_t*>(panel) + 16 * kColumns * kProduct, 64);
    if constexpr (kProduct == kOfGroup - 1) {
      if (++group_ == num_groups_) {
        group_ = 0;
        if (tile_ + 1 < num_tiles_) ++tile_;
      }
    }
  }
  template <int kTile>
  [[gnu::always_inline]] static inline void multiply() {
    tile_dot<kTile, kA<kTile>, kB<kTile>, Folding::kIsSigned>();
  }
  template <int kTile>
  [[gnu::always_inline]] inline void store(int i) {
    tile_store<kTile>(dots_[i / kOfGroup % kSlots][kTile % kOfGroup]);
    tile_zero<kTile>();
  }

  alignas(64) std::int32_t dots_[kSlots][kOfGroup][256];
  const TilePanels<Folding>& panels_;
  const int first_group_, num_groups_, num_tiles_;
  const TileInput x_;
  int tile_ = 0, group_ = 0;  // of the next product that is loaded
};

// The sums of 16 rows for each token of a tile, in registers.
template <class F, int kTokens>
struct TileSums {
  f32x16 v[kTokens];

  template <int kProducts, std::size_t... t>
  [[gnu::always_inline]] inline void add(const typename FoldingOf<F>::Group& group,
                                         const std::int32_t (&dots)[kProducts][256], std::int64_t g,
                                         const TokenInput* tokens, std::index_sequence<t...>) {
    ((v[t] = apply_token<F>(group, dots, static_cast<int>(t), g, tokens[t], v[t])), ...);
  }
};

// Groups that are folded ahead of the one that is added, where they are not folded before.
constexpr int kFoldedAhead = 5;

// Adds the products of tiles with groups to sums_of_rows[token][row]. kFolds: there is one tile, and its groups are
// folded on the way. Else they are in the panels; while the first tile is added, those far behind them are asked for,
// so that memory has work all the time.
template <class F, int kTokens, bool kFolds>
EDGERT_FLATTEN static inline void tiles_times_panels(const Strip<F>& strip, TilePanels<FoldingOf<F>>& panels,
                                                     int first_group, int num_groups, const TileInput& x, int num_tiles,
                                                     float* sums_of_rows) {
  using Products = TileProducts<FoldingOf<F>>;
  constexpr int kOfGroup = Products::kOfGroup, kGroups = TilePanels<FoldingOf<F>>::kGroups;
  const int num_products = num_groups * kOfGroup;
  if constexpr (kFolds) {
    static_assert(kFoldedAhead < kGroups);
    for (int i = 0; i < kFoldedAhead && i < num_groups; ++i) fold_group(strip, first_group + i, panels);
  }
  Products products(panels, first_group, num_groups, x, num_tiles);
  for (int tile = 0; tile < num_tiles; ++tile) {
    float* const of_tile = sums_of_rows + kStripRows * kTokensOfTile * tile;
    const TokenInput* const tokens = x.tokens + kTokensOfTile * tile;
    if (tile == 0 || num_products % 4 != 0) products.start(tile);
    TileSums<F, kTokens> sums;
    EDGERT_UNROLL
    for (int t = 0; t < kTokens; ++t) sums.v[t] = load(of_tile + kStripRows * t);
    const auto step = [&]<int kTile>(int i) __attribute__((always_inline)) {
      products.template step<kTile>(i);
      if constexpr (kTile % kOfGroup == kOfGroup - 1) {
        const int group = i / kOfGroup, g = first_group + group;
        if (kFolds || tile == 0) prefetch_far(strip, g);
        if (kFolds && group + kFoldedAhead < num_groups) fold_group(strip, g + kFoldedAhead, panels);
        sums.add(panels.groups[g % kGroups], products.dots(group), g, tokens, std::make_index_sequence<kTokens>());
      }
      return i + 1 < num_products;
    };
    for (int i = 0;; i += 4) {
      if (!step.template operator()<0>(i) || !step.template operator()<1>(i + 1)) break;
      if (!step.template operator()<2>(i + 2) || !step.template operator()<3>(i + 3)) break;
    }
    EDGERT_UNROLL
    for (int t = 0; t < kTokens; ++t) store(of_tile + kStripRows * t, sums.v[t]);
  }
}

// Activations of a tile whose tokens are not neighbours (experts take what the router gives them), copied together.
struct GatheredTokens {
  alignas(64) std::int8_t codes[16][kTokensOfTile][kGroupColumns];
};

// Whether every 16 tokens from the first one on are a tile as they lie; what is behind the last one may be read.
static inline bool is_tiled(const LinearInput& x) {
  return x.tile_vectors == kTokensOfTile && !x.vector_rows && x.first_vector % kTokensOfTile == 0;
}

// Copies the groups of a panel.
static inline TileInput gather_tile(const TokenInput* tokens, int num_tokens, std::int64_t step, int first_group,
                                    int num_groups, GatheredTokens& gathered) {
  for (int t = 0; t < num_tokens; ++t) {
    const std::int8_t* codes = tokens[t].codes + first_group * step;
    for (int i = 0; i < num_groups; ++i) __builtin_memcpy(gathered.codes[i][t], codes + i * step, kGroupColumns);
  }
  return {gathered.codes[0][0], 0, tokens};
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

// Rows that the tiles of a block have. Where tokens do not lie in tiles, the last one begins early enough to be a whole
// one: what it shares with the one before gets the same bits again.
static inline int tokens_of_tile(const LinearInput& x, int num_tokens) {
  return num_tokens < kTokensOfTile && !is_tiled(x) ? num_tokens : kTokensOfTile;
}

template <class F>
static void strip_times_block(const WeightView& w, int strip_index, const LinearInput& x, int first_token,
                              int num_tokens, const LinearOutput& y) {
  const Strip<F> strip(w, strip_index);
  const int num_groups = w.groups;
  using Panels = TilePanels<FoldingOf<F>>;
  const int tile_tokens = tokens_of_tile(x, num_tokens);
  const int num_tiles = (num_tokens + kTokensOfTile - 1) / kTokensOfTile;
  const auto token_of_tile = [&](int tile) {
    const int token = tile * kTokensOfTile, last = num_tokens - tile_tokens;
    return first_token + (token < last || is_tiled(x) ? token : last);
  };
  Panels panels;
  GatheredTokens gathered;
  TokenInput tokens[kMaxBlockTokens];
  alignas(64) float sums_of_rows[kMaxBlockTokens * kStripRows];
  for (int tile = 0; tile < num_tiles; ++tile) {
    for (int t = 0; t < kTokensOfTile; ++t) {  // of fewer the last one again: what is added for them goes nowhere
      tokens[kTokensOfTile * tile + t] =
          token_input<F>(x, token_of_tile(tile) + (t < tile_tokens ? t : tile_tokens - 1));
    }
  }
  for (int i = 0; i < num_tiles * kTokensOfTile; ++i) store(sums_of_rows + kStripRows * i, zero());

  const auto input_of = [&](int tile, int first_group) {
    return TileInput{tokens[kTokensOfTile * tile].codes + first_group * kTileStep, kTokensOfTile * x.codes_stride,
                     tokens + kTokensOfTile * tile};
  };
  if (num_tiles == 1 && is_tiled(x)) {
    const auto multiply = [&](auto function) {
      function(strip, panels, 0, num_groups, input_of(0, 0), 1, sums_of_rows);
    };
    if (tile_tokens <= 4) {
      multiply(tiles_times_panels<F, 4, true>);
    } else if (tile_tokens <= 8) {
      multiply(tiles_times_panels<F, 8, true>);
    } else {
      multiply(tiles_times_panels<F, kTokensOfTile, true>);
    }
  } else {
    for (int first = 0; first < num_groups; first += Panels::kGroups) {
      const int count = num_groups - first < Panels::kGroups ? num_groups - first : Panels::kGroups;
      for (int i = 0; i < count; ++i) fold_group(strip, first + i, panels);
      const auto multiply = [&](const TileInput& input, int tile, int tiles) {
        tiles_times_panels<F, kTokensOfTile, false>(strip, panels, first, count, input, tiles,
                                                    sums_of_rows + kStripRows * kTokensOfTile * tile);
      };
      if (is_tiled(x)) {
        multiply(input_of(0, first), 0, num_tiles);
      } else {
        for (int tile = 0; tile < num_tiles; ++tile) {
          const TokenInput* const of_tile = tokens + kTokensOfTile * tile;
          multiply(gather_tile(of_tile, tile_tokens, codes_step(x.tile_vectors), first, count, gathered), tile, 1);
        }
      }
    }
  }
  for (int tile = 0; tile < num_tiles; ++tile) {
    const int first = token_of_tile(tile), left = first_token + num_tokens - first;
    for (int t = 0; t < (tile_tokens < left ? tile_tokens : left); ++t) {
      const int token = first + t;
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
    const TileScope scope(tokens_of_tile(x, num_tokens), 64 / FoldingOf<F>::kDots);
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
