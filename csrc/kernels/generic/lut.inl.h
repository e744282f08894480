// Products through tables of activations (LUT-GEMM, T-MAC): of each quad of activations the 16 sums that four bits can
// choose. The bits of a row are the index; no product is computed. Low and high bytes of the 16-bit sums are two
// tables, so nothing is lost. Built once for an input vector, for all matrices that read it. With `kRounded` one table
// of eighths is read instead, which is faster and not exact (docs/numerics.md).

// bits[c][i]: all ones where index i has bit c.
alignas(64) constexpr std::int32_t kIndexBits[4][16] = {
    {0, -1, 0, -1, 0, -1, 0, -1, 0, -1, 0, -1, 0, -1, 0, -1},
    {0, 0, -1, -1, 0, 0, -1, -1, 0, 0, -1, -1, 0, 0, -1, -1},
    {0, 0, 0, 0, -1, -1, -1, -1, 0, 0, 0, 0, -1, -1, -1, -1},
    {0, 0, 0, 0, 0, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1},
};

[[maybe_unused]] static void build_tables(const std::int8_t* codes, int cols, LutTables* tables) {
  i32x16 bits[4];
  for (int c = 0; c < 4; ++c) bits[c] = load_int(kIndexBits[c]);
  for (int g = 0; g * kGroupColumns < cols; ++g) {
    for (int q = 0; q < 16; ++q) {
      const std::int8_t* x = codes + g * kGroupColumns + 4 * q;
      const i32x16 first = add(and_int(bits[0], x[0]), and_int(bits[1], x[1]));
      const i32x16 sums = add(first, add(and_int(bits[2], x[2]), and_int(bits[3], x[3])));
      store_low_bytes(reinterpret_cast<std::int8_t*>(tables[g].low) + 16 * q, sums);
      store_low_bytes(reinterpret_cast<std::int8_t*>(tables[g].high) + 16 * q, shift_right<8>(sums));
      store_low_bytes(reinterpret_cast<std::int8_t*>(tables[g].eighths) + 16 * q,
                      add(shift_right<3>(sums), splat_int(64)));
    }
  }
}

// How far ahead codes and scales are asked for, into the second-level cache: the first one is full of tables. A strip
// of one bit is short, so that this is often the next strip that is not being read yet.
constexpr int kLutAheadGroups = 64;

// kStrips strips at a time share the loads of the tables.
template <class F, int kStrips, bool kRounded>
static inline void lut_strips(const WeightView& w, const LinearInput& x, int first_strip, float* y) {
  using Scales = typename F::Scales;
  const TokenInput token = token_input<F>(x, 0);
  const LutTables* tables = x.tables + vector_of(x, 0) * x.group_stride;
  const std::uint8_t *codes[kStrips], *scales[kStrips][1];
  f32x16 acc[kStrips];
  for (int s = 0; s < kStrips; ++s) {
    const Strip<F> strip(w, first_strip + s);
    codes[s] = strip.codes[0];
    scales[s][0] = strip.scales[0];
    acc[s] = zero();
  }
  const std::int64_t groups = w.groups;
  std::int64_t ahead = kLutAheadGroups, end = groups;
  for (std::int64_t g = 0; g < groups; ++g, ++ahead) {
    for (; ahead >= end; end += kStrips * groups) ahead += (kStrips - 1) * groups;
    EDGERT_UNROLL
    for (int s = 0; s < kStrips; ++s) {
      __builtin_prefetch(codes[s] + 128 * ahead, 0, 2);
      __builtin_prefetch(codes[s] + 128 * ahead + 64, 0, 2);
      if (g % 2 == 0) __builtin_prefetch(scales[s][0] + 32 * ahead, 0, 2);
      const i32x16 dots[1] = {F::Codes::template lut_dot<kRounded>(codes[s], g, tables)};
      acc[s] = Scales::apply(Scales::load_group(scales[s], g), dots, token.scales + g, token.sums[g], acc[s]);
    }
  }
  for (int s = 0; s < kStrips; ++s) store(y + kStripRows * s, acc[s]);
}

template <class F, bool kRounded>
static void linear_lut(const WeightView& w, const LinearInput& x, const LinearOutput& y, int first_strip,
                       int last_strip) {
  constexpr int kTogether = 4;
  int s = first_strip;
  for (; s + kTogether <= last_strip; s += kTogether) lut_strips<F, kTogether, kRounded>(w, x, s, y.y + s * kStripRows);
  for (; s < last_strip; ++s) lut_strips<F, 1, kRounded>(w, x, s, y.y + s * kStripRows);
  for (s = first_strip; s < last_strip; ++s) finish_rows(w, x, y, s, 0);
}
