// Products of float weights with several tokens on a matrix unit, in bfloat16. Both factors are rounded to it, and sums
// are made in the order of the tiles: not the bits of the other kernels but within a bound (docs/numerics.md, section
// 2). So it is taken only where it is asked for by name.
// Rows of the matrix are tiles as they lie, 32 columns in 64 bytes; the activations are turned once for many strips, so
// that the columns of two neighbours lie together. The tile of the sums has a row of the matrix in each row and the
// tokens in its lanes. Included after generic/linear_float.inl.h, generic/linear.inl.h and the tiles of simd/.

constexpr int kBF16Tokens = 32;    // two tiles
constexpr int kBF16Columns = 512;  // their activations take 32 KB, those of a strip 16 KB

// Pairs of columns of the tokens of a block: pairs[tile][column / 2][token].
struct TurnedTokens {
  alignas(64) std::int32_t pairs[kBF16Tokens / kTokensOfTile][kBF16Columns / 2][kTokensOfTile];
};

// Columns [column, column + 32) of a row of float32 that is 0 from its end to a multiple of 16.
static inline Bytes bf16_of_values(const float* values, int column, int cols) {
  const f32x16 first = column < cols ? load(values + column) : zero();
  return to_bf16(first, column + 16 < cols ? load(values + column + 16) : zero());
}

static void turn_tokens(const LinearInput& x, int first_token, int num_tokens, int first_column, int num_columns,
                        int cols, TurnedTokens& turned) {
  for (int tile = 0; tile * kTokensOfTile < num_tokens; ++tile) {
    for (int column = 0; column < num_columns; column += 32) {
      i32x16 pairs[16];
      for (int t = 0; t < kTokensOfTile; ++t) {
        const int token = tile * kTokensOfTile + t;
        if (token >= num_tokens) {
          pairs[t] = splat_int(0);
          continue;
        }
        const std::int64_t vector = vector_of(x, first_token + token);
        pairs[t] = bf16_of_values(x.values + vector * x.values_stride, first_column + column, cols);
      }
      transpose(pairs);
      for (int k = 0; k < 16; ++k) store_ints(turned.pairs[tile][column / 2 + k], pairs[k]);
    }
  }
}

// Some columns of a strip as bfloat16; what lies beyond the matrix is 0.
struct RoundedRows {
  static constexpr std::int64_t kRowBytes = 2 * kBF16Columns;
  alignas(64) std::uint8_t bytes[kStripRows * kRowBytes];
};

template <class V>
static void round_rows(const WeightView& w, int row, int num_rows, int first_column, int num_columns,
                       RoundedRows& rounded) {
  constexpr std::int64_t kElement = sizeof(typename V::Element);
  const auto values_at = [&](const std::uint8_t* p, int column) {
    const int left = w.cols - column;
    if (left >= 16) return V::load_values(p + column * kElement);
    return left > 0 ? load_values_first<V>(p + column * kElement, left) : zero();
  };
  for (int r = 0; r < kStripRows; ++r) {
    const std::uint8_t* p = w.parts[0] + (row + r) * w.row_bytes;
    for (int i = 0; i < num_columns; i += 32) {
      const int column = first_column + i;
      std::uint8_t* out = rounded.bytes + r * RoundedRows::kRowBytes + 2 * i;
      store_bytes(out, r < num_rows ? to_bf16(values_at(p, column), values_at(p, column + 16)) : splat_int(0));
    }
  }
}

// sums[tile][row][token] of num_columns columns, a multiple of 64: even and odd tiles of columns are summed apart,
// since a product waits for the one before it.
template <int kTiles>
static inline void multiply_rows(const std::int8_t* rows, std::int64_t row_bytes, const TurnedTokens& turned,
                                 int num_columns, std::int32_t (&sums)[4][256]) {
  tile_zero<0>();
  tile_zero<2>();
  if constexpr (kTiles == 2) {
    tile_zero<1>();
    tile_zero<3>();
  }
  const auto tokens_at = [&](int tile, int column) {
    return reinterpret_cast<const std::int8_t*>(turned.pairs[tile][column / 2]);
  };
  for (int column = 0; column < num_columns; column += 64) {
    tile_load<4>(rows + 2 * column, row_bytes);
    tile_load<5>(rows + 2 * column + 64, row_bytes);
    tile_load<6>(tokens_at(0, column), 64);
    tile_dot_bf16<0, 4, 6>();
    tile_load<7>(tokens_at(0, column + 32), 64);
    tile_dot_bf16<2, 5, 7>();
    if constexpr (kTiles == 2) {
      tile_load<6>(tokens_at(1, column), 64);
      tile_dot_bf16<1, 4, 6>();
      tile_load<7>(tokens_at(1, column + 32), 64);
      tile_dot_bf16<3, 5, 7>();
    }
  }
  tile_store<0>(sums[0]);
  tile_store<2>(sums[2]);
  if constexpr (kTiles == 2) {
    tile_store<1>(sums[1]);
    tile_store<3>(sums[3]);
  }
}

// y[token][row] = or += the sums of one tile of tokens.
static inline void add_sums(const std::int32_t (&even)[256], const std::int32_t (&odd)[256], int num_tokens,
                            bool is_first, float* y, std::int64_t stride) {
  i32x16 sums[16];
  for (int r = 0; r < 16; ++r) {
    sums[r] = to_bits(add(from_bits(load_ints(even + 16 * r)), from_bits(load_ints(odd + 16 * r))));
  }
  transpose(sums);
  for (int t = 0; t < num_tokens; ++t) {
    float* out = y + t * stride;
    store(out, is_first ? from_bits(sums[t]) : add(load(out), from_bits(sums[t])));
  }
}

// One block of tokens and one of columns times some strips.
template <class V>
static void strips_times_columns(const WeightView& w, const LinearInput& x, const LinearOutput& y, int first_strip,
                                 int last_strip, int first_token, int first_column) {
  const int left = w.cols - first_column;
  const int num_columns = left < kBF16Columns ? (left + 63) / 64 * 64 : kBF16Columns;
  const int num_tokens = x.tokens - first_token < kBF16Tokens ? x.tokens - first_token : kBF16Tokens;
  const int num_tiles = num_tokens > kTokensOfTile ? 2 : 1;
  TurnedTokens turned;
  turn_tokens(x, first_token, num_tokens, first_column, num_columns, w.cols, turned);
  RoundedRows rounded;
  alignas(64) std::int32_t sums[4][256];
  for (int s = first_strip; s < last_strip; ++s) {
    const int row = s * kStripRows, num_rows = rows_of_strip(w, s);
    const std::uint8_t* rows = rounded.bytes;
    std::int64_t row_bytes = RoundedRows::kRowBytes;
    if (V::kFormat == Format::bf16 && num_rows == kStripRows && num_columns <= left) {
      row_bytes = w.row_bytes;
      rows = w.parts[0] + row * row_bytes + 2 * first_column;
    } else {
      round_rows<V>(w, row, num_rows, first_column, num_columns, rounded);
    }
    if (num_tiles == 2) {
      multiply_rows<2>(reinterpret_cast<const std::int8_t*>(rows), row_bytes, turned, num_columns, sums);
    } else {
      multiply_rows<1>(reinterpret_cast<const std::int8_t*>(rows), row_bytes, turned, num_columns, sums);
    }
    for (int tile = 0; tile < num_tiles; ++tile) {
      const int token = tile * kTokensOfTile, tokens_left = num_tokens - token;
      add_sums(sums[tile], sums[2 + tile], tokens_left < kTokensOfTile ? tokens_left : kTokensOfTile, first_column == 0,
               y.y + (first_token + token) * y.stride + row, y.stride);
    }
  }
}

template <class V>
static void linear_bf16(const WeightView& w, const LinearInput& x, const LinearOutput& y, int first_strip,
                        int last_strip) {
  {
    const TileScope scope(kTokensOfTile, 64);
    for (int token = 0; token < x.tokens; token += kBF16Tokens) {
      for (int column = 0; column < w.cols; column += kBF16Columns) {
        strips_times_columns<V>(w, x, y, first_strip, last_strip, token, column);
      }
    }
  }
  for (int s = first_strip; s < last_strip; ++s) {
    for (int t = 0; t < x.tokens; ++t) finish_rows(w, x, y, s, t);
  }
}

template <class... Values>
static constexpr void set_bf16_tiles(KernelTable& table) {
  ((table.linear[static_cast<int>(Values::kFormat)] =
        LinearKernels{{{"tile_bf16", linear_bf16<Values>, 2, kAnyTokens, false, true}}}),
   ...);
}
