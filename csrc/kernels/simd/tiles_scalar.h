// The tile registers of a matrix unit as plain loops: what simd/tiles_amx.h does, for tests on processors without one.
// Eight tiles of up to 16 rows x 64 bytes. Tiles 0 to 3 hold sums (C), 4 and 5 activations (A), 6 and 7 weights (B).
struct EmulatedTile {
  int rows = 0, row_bytes = 0;  // as configured
  std::uint8_t v[16][64];
};
static thread_local EmulatedTile emulated_tiles[8];

// While it lives, this thread's tiles have `tokens` rows in A and C, and `columns` (64, 32 or 16) in A and B.
class TileScope {
 public:
  TileScope(int tokens, int columns) {
    for (int i = 0; i < 8; ++i) {
      emulated_tiles[i].rows = i < 6 ? tokens : columns / 4;
      emulated_tiles[i].row_bytes = i == 4 || i == 5 ? columns : 64;
    }
  }
  ~TileScope() {
    for (EmulatedTile& tile : emulated_tiles) tile.rows = tile.row_bytes = 0;
  }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

// A tile that is not configured is an invalid instruction there, so here.
template <int kTile>
static inline EmulatedTile& configured_tile() {
  if (emulated_tiles[kTile].rows == 0) __builtin_trap();
  return emulated_tiles[kTile];
}
template <int kTile>
static inline void tile_zero() {
  __builtin_memset(configured_tile<kTile>().v, 0, sizeof(EmulatedTile::v));
}
// Rows are `stride` bytes apart.
template <int kTile>
static inline void tile_load(const std::int8_t* p, std::int64_t stride) {
  EmulatedTile& tile = configured_tile<kTile>();
  tile_zero<kTile>();
  for (int row = 0; row < tile.rows; ++row) {
    __builtin_memcpy(tile.v[row], p + row * stride, static_cast<std::size_t>(tile.row_bytes));
  }
}
// 64 bytes for each row, one after the other.
template <int kTile>
static inline void tile_store(std::int32_t* p) {
  const EmulatedTile& tile = configured_tile<kTile>();
  __builtin_memcpy(p, tile.v, static_cast<std::size_t>(tile.rows) * 64);
}
// C[token][row] += the dot of A[token] with the columns of that row: B[column / 4][4 row + column % 4]. Activations are
// signed, weights are if kIsSigned.
template <int kC, int kA, int kB, bool kIsSigned>
static inline void tile_dot() {
  EmulatedTile& c = configured_tile<kC>();
  const EmulatedTile &a = configured_tile<kA>(), &b = configured_tile<kB>();
  if (c.rows != a.rows || 4 * b.rows != a.row_bytes) __builtin_trap();
  for (int token = 0; token < c.rows; ++token) {
    for (int row = 0; row < 16; ++row) {
      std::int32_t sum;
      __builtin_memcpy(&sum, c.v[token] + 4 * row, 4);
      for (int column = 0; column < a.row_bytes; ++column) {
        const std::uint8_t code = b.v[column / 4][4 * row + column % 4];
        const int weight = kIsSigned ? static_cast<std::int8_t>(code) : code;
        sum += static_cast<std::int8_t>(a.v[token][column]) * weight;
      }
      __builtin_memcpy(c.v[token] + 4 * row, &sum, 4);
    }
  }
}
// The same of pairs of bfloat16 with float32 sums: C[a][b] += the dot of A[a] with B[pair][2 b + column % 2], the sums
// of even and of odd columns apart. (The matrix unit also takes subnormal numbers for 0.)
template <int kC, int kA, int kB>
static inline void tile_dot_bf16() {
  EmulatedTile& c = configured_tile<kC>();
  const EmulatedTile &a = configured_tile<kA>(), &b = configured_tile<kB>();
  if (c.rows != a.rows || 4 * b.rows != a.row_bytes) __builtin_trap();
  const auto value = [](const std::uint8_t* p) {
    const std::uint32_t bits = static_cast<std::uint32_t>(p[0] | p[1] << 8) << 16;
    float result;
    __builtin_memcpy(&result, &bits, 4);
    return result;
  };
  for (int row = 0; row < c.rows; ++row) {
    for (int lane = 0; lane < 16; ++lane) {
      float sums[2] = {0.0f, 0.0f}, sum;
      for (int column = 0; column < a.row_bytes / 2; ++column) {
        const std::uint8_t* p = b.v[column / 2] + 4 * lane + 2 * (column % 2);
        sums[column % 2] += value(a.v[row] + 2 * column) * value(p);
      }
      __builtin_memcpy(&sum, c.v[row] + 4 * lane, 4);
      sum += sums[0] + sums[1];
      __builtin_memcpy(c.v[row] + 4 * lane, &sum, 4);
    }
  }
}
