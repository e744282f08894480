// The tile registers of AMX. What each function means: simd/tiles_scalar.h.
// As asm of our own: gcc's intrinsics do not tell the compiler what they read and write, so that it may drop or move
// the stores before them.
struct alignas(64) TileConfiguration {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

class TileScope {
 public:
  TileScope(int tokens, int columns) {
    TileConfiguration configuration;
    for (int i = 0; i < 8; ++i) {
      configuration.rows[i] = static_cast<std::uint8_t>(i < 6 ? tokens : columns / 4);
      configuration.row_bytes[i] = static_cast<std::uint16_t>(i == 4 || i == 5 ? columns : 64);
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(configuration));
  }
  ~TileScope() { __asm__ volatile("tilerelease"); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

template <int kTile>
static inline void tile_zero() {
  __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
template <int kTile>
static inline void tile_load(const std::int8_t* p, std::int64_t stride) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
static inline void tile_store(std::int32_t* p) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(p), "r"(std::int64_t{64}), "i"(kTile) : "memory");
}
template <int kC, int kA, int kB>
static inline void tile_dot_bf16() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
}
template <int kC, int kA, int kB, bool kIsSigned>
static inline void tile_dot() {
  if constexpr (kIsSigned) {
    __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
  } else {
    __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
  }
}
