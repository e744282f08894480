// Attention over KV blocks of 64 positions (docs/numerics.md). Scores are summed over the head dimension in ascending
// order with positions in the lanes; values over the positions in ascending order with the head dimension in the lanes.

constexpr int kTiles = kPageTokens / 16;

struct KVF32 {
  static constexpr int kBytes = 4;
  static inline f32x16 load_kv(const void* base, std::int64_t index) {
    return load(static_cast<const float*>(base) + index);
  }
  static inline f32x16 load_kv_first(const void* base, std::int64_t index, int n) {
    return load_first(static_cast<const float*>(base) + index, n, 0.0f);
  }
};
struct KVF16 {
  static constexpr int kBytes = 2;
  static inline f32x16 load_kv(const void* base, std::int64_t index) {
    return load_f16(static_cast<const std::uint16_t*>(base) + index);
  }
  static inline f32x16 load_kv_first(const void* base, std::int64_t index, int n) {
    alignas(64) std::uint16_t buffer[16] = {};
    __builtin_memcpy(buffer, static_cast<const std::uint16_t*>(base) + index, static_cast<std::size_t>(n) * 2);
    return load_f16(buffer);
  }
};

// What is known of a query row after some blocks: the output so far is sum(p v), not yet divided.
struct RowState {
  float maximum = 0.0f;
  float sum = 0.0f;
  bool is_empty = true;
};

// Weights of one block for kRows rows, and how the block is merged into the rows.
template <int kRows>
struct BlockWeights {
  alignas(64) float p[kRows][kPageTokens];
  std::uint64_t mask[kRows];
  float old_factor[kRows], new_factor[kRows];
  bool is_first[kRows];
};

template <class KV, int kRows>
static inline void block_scores(const AttentionTask& task, const KVBlock& block, int first_row,
                                BlockWeights<kRows>& w) {
  constexpr int kTogether = kRows < kTiles ? kTiles / kRows : 1;  // independent sums hide the latency of fma
  const std::int64_t tile_values = static_cast<std::int64_t>(task.head_dim) * 16;
  for (int tile = 0; tile < kTiles; tile += kTogether) {
    f32x16 s[kRows][kTogether];
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < kTogether; ++i) s[r][i] = zero();
    }
    for (int d = 0; d < task.head_dim; ++d) {
      f32x16 k[kTogether];
      for (int i = 0; i < kTogether; ++i) k[i] = KV::load_kv(block.k, (tile + i) * tile_values + 16 * d);
      for (int r = 0; r < kRows; ++r) {
        const f32x16 q = splat(task.q[first_row + r][d]);
        for (int i = 0; i < kTogether; ++i) s[r][i] = fma(k[i], q, s[r][i]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < kTogether; ++i) {
        f32x16 score = mul(s[r][i], splat(task.scale));
        if (task.soft_cap != 0.0f) score = soft_cap(score, splat(task.soft_cap));
        store(w.p[r] + 16 * (tile + i), score);
      }
    }
  }
}

// Scores to weights exp(score - maximum of the block), their sum, and the factors of the merge.
static inline void block_softmax(float* p, std::uint64_t mask, RowState& state, float& old_factor, float& new_factor,
                                 bool& is_first) {
  const float lowest = -__builtin_inff();
  for (int j = 0; j < kPageTokens; ++j) {
    if (!((mask >> j) & 1)) p[j] = lowest;
  }
  f32x16 top = load(p);
  for (int tile = 1; tile < kTiles; ++tile) top = max(top, load(p + 16 * tile));
  const float block_max = max_lanes(top);
  f32x16 lanes = zero();
  for (int tile = 0; tile < kTiles; ++tile) {
    const f32x16 e = exp(sub(load(p + 16 * tile), splat(block_max)));
    store(p + 16 * tile, e);
    lanes = add(lanes, e);
  }
  const float block_sum = sum_lanes(lanes);
  is_first = state.is_empty;
  if (is_first) {
    state = {block_max, block_sum, false};
    return;
  }
  const float merged_max = state.maximum > block_max ? state.maximum : block_max;
  alignas(64) float factors[16] = {state.maximum - merged_max, block_max - merged_max};
  store(factors, exp(load(factors)));
  old_factor = factors[0];
  new_factor = factors[1];
  state.sum = __builtin_fmaf(block_sum, new_factor, state.sum * old_factor);
  state.maximum = merged_max;
}

// o = sum over the allowed positions of p v for kVectors vectors of the head dimension, merged into the rows' outputs.
template <class KV, int kRows, int kVectors>
static inline void block_values(const AttentionTask& task, const KVBlock& block, int first_row, int first_dim, int dims,
                                const BlockWeights<kRows>& w) {
  f32x16 o[kRows][kVectors];
  std::uint64_t all = ~0ull, any = 0;
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) o[r][v] = zero();
    all &= w.mask[r];
    any |= w.mask[r];
  }
  for (; any != 0; any &= any - 1) {
    const int j = __builtin_ctzll(any);
    const std::int64_t index = static_cast<std::int64_t>(j) * task.head_dim + first_dim;
    f32x16 values[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      values[v] =
          dims == 16 * kVectors ? KV::load_kv(block.v, index + 16 * v) : KV::load_kv_first(block.v, index, dims);
    }
    for (int r = 0; r < kRows; ++r) {
      if (!((all >> j) & 1) && !((w.mask[r] >> j) & 1)) continue;
      const f32x16 p = splat(w.p[r][j]);
      for (int v = 0; v < kVectors; ++v) o[r][v] = fma(p, values[v], o[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    if (w.mask[r] == 0) continue;
    for (int v = 0; v < kVectors; ++v) {
      float* out = task.out[first_row + r] + first_dim + 16 * v;
      const bool is_whole = dims == 16 * kVectors;
      f32x16 merged = o[r][v];
      if (!w.is_first[r]) {
        const f32x16 old = is_whole ? load(out) : load_first(out, dims, 0.0f);
        merged = fma(merged, splat(w.new_factor[r]), mul(old, splat(w.old_factor[r])));
      }
      if (is_whole) {
        store(out, merged);
      } else {
        store_first(out, merged, dims);
      }
    }
  }
}

template <class KV, int kRows>
static inline void attend_block(const AttentionTask& task, int block_index, int first_row, RowState* states) {
  const KVBlock& block = task.blocks[block_index];
  BlockWeights<kRows> w;
  std::uint64_t any = 0;
  for (int r = 0; r < kRows; ++r) {
    w.mask[r] = task.masks[static_cast<std::int64_t>(block_index) * task.num_rows + first_row + r];
    any |= w.mask[r];
  }
  if (any == 0) return;
  block_scores<KV, kRows>(task, block, first_row, w);
  for (int r = 0; r < kRows; ++r) {
    if (w.mask[r] == 0) continue;
    block_softmax(w.p[r], w.mask[r], states[first_row + r], w.old_factor[r], w.new_factor[r], w.is_first[r]);
  }
  int d = 0;
  for (; d + 16 * kAttentionVectors <= task.head_dim; d += 16 * kAttentionVectors) {
    block_values<KV, kRows, kAttentionVectors>(task, block, first_row, d, 16 * kAttentionVectors, w);
  }
  for (; d < task.head_dim; d += 16) {
    const int dims = task.head_dim - d < 16 ? task.head_dim - d : 16;
    block_values<KV, kRows, 1>(task, block, first_row, d, dims, w);
  }
}

static inline void finish_row(const AttentionTask& task, int row, const RowState& state) {
  float* out = task.out[row];
  if (state.is_empty) {
    for (int d = 0; d < task.head_dim; ++d) out[d] = 0.0f;
  } else {
    for_each_vector(task.head_dim, out, [&](auto at) { return div(at(out), splat(state.sum)); });
  }
  if (task.log_sum_exp) {
    task.log_sum_exp[row] = state.is_empty
                                ? -__builtin_inff()
                                : static_cast<float>(static_cast<double>(state.maximum) + edgert::math::log(state.sum));
  }
}

template <class KV>
static inline void attend(const AttentionTask& task) {
  RowState states[kMaxAttentionRows];
  for (int b = 0; b < task.num_blocks; ++b) {
    int row = 0;
    for (; row + kAttentionRows <= task.num_rows; row += kAttentionRows) {
      attend_block<KV, kAttentionRows>(task, b, row, states);
    }
    if constexpr (kAttentionRows > 2) {
      for (; row + 2 <= task.num_rows; row += 2) attend_block<KV, 2>(task, b, row, states);
    }
    for (; row < task.num_rows; ++row) attend_block<KV, 1>(task, b, row, states);
  }
  for (int row = 0; row < task.num_rows; ++row) finish_row(task, row, states[row]);
}

static void attention(const AttentionTask& task) {
  if (task.format == KVFormat::f16) {
    attend<KVF16>(task);
  } else {
    attend<KVF32>(task);
  }
}

static void store_k(KVFormat format, const float* k, int head_dim, int slot, void* block_k) {
  const std::int64_t tile = static_cast<std::int64_t>(slot / 16) * head_dim * 16;
  for (int d = 0; d < head_dim; ++d) {
    const std::int64_t index = tile + 16 * d + slot % 16;
    if (format == KVFormat::f16) {
      static_cast<std::uint16_t*>(block_k)[index] = f16_from_float(k[d]);
    } else {
      static_cast<float*>(block_k)[index] = k[d];
    }
  }
}

static void store_v(KVFormat format, const float* v, int head_dim, int slot, void* block_v) {
  const std::int64_t base = static_cast<std::int64_t>(slot) * head_dim;
  if (format == KVFormat::f32) {
    __builtin_memcpy(static_cast<float*>(block_v) + base, v, static_cast<std::size_t>(head_dim) * 4);
    return;
  }
  for (int d = 0; d < head_dim; d += 16) {
    std::uint16_t* out = static_cast<std::uint16_t*>(block_v) + base + d;
    const int n = head_dim - d;
    if (n >= 16) {
      store_f16(out, load(v + d));
    } else {
      alignas(64) std::uint16_t buffer[16];
      store_f16(buffer, load_first(v + d, n, 0.0f));
      __builtin_memcpy(out, buffer, static_cast<std::size_t>(n) * 2);
    }
  }
}
