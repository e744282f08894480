// Attention over KV blocks of 64 positions (docs/numerics.md). Scores are summed over the head dimension in ascending
// order with positions in the lanes; values over the positions in ascending order with the head dimension in the lanes.

constexpr int kTiles = kPageTokens / 16;
static_assert(kMaxAttentionRows % 16 == 0, "states of rows are merged 16 at a time");

// How a kind of cache is read: `load` gives 16 neighbouring codes times their scale. A scale serves kRun values of the
// head dimension; kBytes is the size of a code.
struct NoScale {};
struct KVF32 {
  static constexpr int kBytes = 4, kRun = 1 << 30;
  static constexpr bool kIsInMemory = true;  // not a copy that was made just now: worth prefetching
  using Scale = NoScale;
  static inline f32x16 load_kv(const void* base, std::int64_t index, NoScale) {
    return load(static_cast<const float*>(base) + index);
  }
  static inline f32x16 load_kv_first(const void* base, std::int64_t index, int n, NoScale) {
    return load_first(static_cast<const float*>(base) + index, n, 0.0f);
  }
  static inline NoScale k_scale(const void*, int, int, int) { return {}; }
  static inline NoScale v_scale(const float*, int, int) { return {}; }
  static constexpr int scale_bytes(int) { return 0; }
};
struct KVWide : KVF32 {
  static constexpr bool kIsInMemory = false;
};
struct KVF16 : KVF32 {
  static constexpr int kBytes = 2;
  static inline f32x16 load_kv(const void* base, std::int64_t index, NoScale) {
    return load_f16(static_cast<const std::uint16_t*>(base) + index);
  }
  static inline f32x16 load_kv_first(const void* base, std::int64_t index, int n, NoScale) {
    alignas(64) std::uint16_t buffer[16] = {};
    __builtin_memcpy(buffer, static_cast<const std::uint16_t*>(base) + index, static_cast<std::size_t>(n) * 2);
    return load_f16(buffer);
  }
};
struct KVQ8 {
  static constexpr int kBytes = 1, kRun = kKVRun;
  static constexpr bool kIsInMemory = true;
  using Scale = f32x16;
  static inline f32x16 load_kv(const void* base, std::int64_t index, Scale scale) {
    return mul(to_float(load_s8(static_cast<const std::uint8_t*>(base) + index)), scale);
  }
  static inline f32x16 load_kv_first(const void* base, std::int64_t index, int n, Scale scale) {
    alignas(64) std::uint8_t buffer[16] = {};
    __builtin_memcpy(buffer, static_cast<const std::uint8_t*>(base) + index, static_cast<std::size_t>(n));
    return load_kv(buffer, 0, scale);
  }
  static inline const std::uint16_t* scales(const void* base, int head_dim) {
    return reinterpret_cast<const std::uint16_t*>(static_cast<const std::uint8_t*>(base) + kPageTokens * head_dim);
  }
  static inline int scale_bytes(int head_dim) { return 2 * kPageTokens * static_cast<int>(kv_runs(head_dim)); }
  static inline f32x16 k_scale(const void* k, int head_dim, int run, int tile) {
    return load_f16(scales(k, head_dim) + kPageTokens * run + 16 * tile);
  }
  // v_scales: the scales of a block, widened.
  static inline f32x16 v_scale(const float* v_scales, int run, int position) {
    return splat(v_scales[kPageTokens * run + position]);
  }
};

// What is known of the query rows after some blocks: their outputs so far are sum(p v), not yet divided.
struct RowStates {
  alignas(64) float maximum[kMaxAttentionRows] = {};
  alignas(64) float sum[kMaxAttentionRows] = {};
  bool is_empty[kMaxAttentionRows];
};

// One block as the query rows see it, and how it joins the blocks before it.
struct BlockRows {
  alignas(64) float p[kMaxAttentionRows][kPageTokens];  // scores, then weights exp(score - maximum)
  alignas(64) float maximum[kMaxAttentionRows] = {};
  alignas(64) float sum[kMaxAttentionRows] = {};
  alignas(64) float old_factor[kMaxAttentionRows];
  alignas(64) float new_factor[kMaxAttentionRows];
  bool is_first[kMaxAttentionRows];  // nothing came before: the block's output is taken as it is
  float* out[kMaxAttentionRows];
  const std::uint64_t* masks;  // [num_rows]
};

// The scales of the values of a q8_0 block as float32, behind the room for a widened block.
static inline float* v_scales(const AttentionTask& task) {
  return task.scratch + static_cast<std::int64_t>(kPageTokens) * task.head_dim;
}
static inline void widen_v_scales(const AttentionTask& task, const void* v) {
  const std::uint16_t* scales = KVQ8::scales(v, task.head_dim);
  for (std::int64_t i = 0; i < kPageTokens * kv_runs(task.head_dim); i += 16)
    store(v_scales(task) + i, load_f16(scales + i));
}

// Asks for as many lines from `address` as the loop reads in the meantime, into the second-level cache: the blocks of a
// head lie far apart, and the first one cannot have enough under way.
template <class KV>
static inline void prefetch_kv(const std::uint8_t* address, int num_values) {
  if constexpr (KV::kIsInMemory) {
    for (int i = 0; i < num_values * KV::kBytes; i += 64) __builtin_prefetch(address + i, 0, 2);
  }
}

// The scales behind the codes of a block, which are read at once.
template <class KV>
static inline void prefetch_scales(const void* block, int head_dim) {
  const auto* scales = static_cast<const std::uint8_t*>(block) + kPageTokens * head_dim * KV::kBytes;
  for (int i = 0; i < KV::scale_bytes(head_dim); i += 64) __builtin_prefetch(scales + i, 0, 2);
}

// next: the keys of the next block.
template <class KV, int kRows>
static inline void block_scores(const AttentionTask& task, const void* k, const void* next, int first_row,
                                BlockRows& w) {
  constexpr int kOfRows = kRows < kTiles ? kTiles / kRows : 1;  // independent sums hide the latency of fma
  constexpr int kTogether = kOfRows > kAttentionVectors ? kOfRows : kAttentionVectors;
  const std::int64_t tile_values = static_cast<std::int64_t>(task.head_dim) * 16;
  const auto* ahead = static_cast<const std::uint8_t*>(next);
  for (int tile = 0; tile < kTiles; tile += kTogether) {
    f32x16 s[kRows][kTogether];
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < kTogether; ++i) s[r][i] = zero();
    }
    for (int d = 0, run = 0; d < task.head_dim; ++run) {
      typename KV::Scale scale[kTogether];
      for (int i = 0; i < kTogether; ++i) scale[i] = KV::k_scale(k, task.head_dim, run, tile + i);
      const int end = task.head_dim - d < KV::kRun ? task.head_dim : d + KV::kRun;
      for (; d < end; ++d) {
        prefetch_kv<KV>(ahead, 16 * kTogether);
        ahead += 16 * kTogether * KV::kBytes;
        f32x16 keys[kTogether];
        for (int i = 0; i < kTogether; ++i) keys[i] = KV::load_kv(k, (tile + i) * tile_values + 16 * d, scale[i]);
        for (int r = 0; r < kRows; ++r) {
          const f32x16 q = splat(task.q[first_row + r][d]);
          for (int i = 0; i < kTogether; ++i) s[r][i] = fma(keys[i], q, s[r][i]);
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < kTogether; ++i) {
        f32x16 score = mul(s[r][i], splat(task.scale));
        if (task.soft_cap != 0.0f) score = soft_cap(score, splat(task.soft_cap));
        store(w.p[first_row + r] + 16 * (tile + i), score);
      }
    }
  }
}

// Scores of a row to weights exp(score - maximum of the block), and their sum.
static inline void block_softmax(BlockRows& w, int row) {
  float* p = w.p[row];
  if (w.masks[row] != ~0ull) {
    for (int j = 0; j < kPageTokens; ++j) {
      if (!((w.masks[row] >> j) & 1)) p[j] = -__builtin_inff();
    }
  }
  f32x16 top = load(p);
  for (int tile = 1; tile < kTiles; ++tile) top = max(top, load(p + 16 * tile));
  w.maximum[row] = max_lanes(top);
  const f32x16 block_max = splat(w.maximum[row]);
  f32x16 lanes = zero();
  for (int tile = 0; tile < kTiles; ++tile) {
    const f32x16 e = exp(sub(load(p + 16 * tile), block_max));
    store(p + 16 * tile, e);
    lanes = add(lanes, e);
  }
  w.sum[row] = sum_lanes(lanes);
}

// Joins maximum and sum of a block to those of the rows, 16 rows at a time, and finds the factors for the outputs.
static inline void merge_states(int num_rows, BlockRows& w, RowStates& states) {
  for (int first = 0; first < num_rows; first += 16) {
    const f32x16 old_max = load(states.maximum + first), new_max = load(w.maximum + first);
    const f32x16 merged_max = max(old_max, new_max);
    const f32x16 old_factor = exp(sub(old_max, merged_max)), new_factor = exp(sub(new_max, merged_max));
    store(w.old_factor + first, old_factor);
    store(w.new_factor + first, new_factor);
    alignas(64) float maximum[16], sum[16];
    store(maximum, merged_max);
    store(sum, fma(load(w.sum + first), new_factor, mul(load(states.sum + first), old_factor)));
    for (int i = 0; i < 16 && first + i < num_rows; ++i) {
      const int row = first + i;
      w.is_first[row] = states.is_empty[row];
      if (w.masks[row] == 0) continue;
      states.maximum[row] = states.is_empty[row] ? w.maximum[row] : maximum[i];
      states.sum[row] = states.is_empty[row] ? w.sum[row] : sum[i];
      states.is_empty[row] = false;
    }
  }
}

// The output of a block for 16 values of the head dimension, joined to the row's.
static inline void merge_output(const BlockRows& w, int row, f32x16 block_out, float* out, int dims) {
  if (!w.is_first[row]) {
    const f32x16 old = dims >= 16 ? load(out) : load_first(out, dims, 0.0f);
    block_out = fma(block_out, splat(w.new_factor[row]), mul(old, splat(w.old_factor[row])));
  }
  if (dims >= 16) {
    store(out, block_out);
  } else {
    store_first(out, block_out, dims);
  }
}

// o = sum over the allowed positions of p v for kVectors vectors of the head dimension, joined to the rows' outputs.
// dims: values that there are, if kVectors is 1. next: the values of the next block.
template <class KV, int kRows, int kVectors>
static inline void block_values(const AttentionTask& task, const void* v, const void* next, int first_row,
                                int first_dim, int dims, const BlockRows& w) {
  f32x16 o[kRows][kVectors];
  std::uint64_t all = ~0ull, any = 0;
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kVectors; ++i) o[r][i] = zero();
    all &= w.masks[first_row + r];
    any |= w.masks[first_row + r];
  }
  const auto* ahead = static_cast<const std::uint8_t*>(next) + static_cast<std::int64_t>(first_dim) * KV::kBytes;
  const auto load_values = [&](int j, f32x16(&values)[kVectors]) {
    const std::int64_t index = static_cast<std::int64_t>(j) * task.head_dim + first_dim;
    prefetch_kv<KV>(ahead + static_cast<std::int64_t>(j) * task.head_dim * KV::kBytes, 16 * kVectors);
    for (int i = 0; i < kVectors; ++i) {
      const auto scale = KV::v_scale(v_scales(task), (first_dim + 16 * i) / KV::kRun, j);
      values[i] =
          kVectors > 1 || dims >= 16 ? KV::load_kv(v, index + 16 * i, scale) : KV::load_kv_first(v, index, dims, scale);
    }
  };
  if (all == ~0ull) {
    for (int j = 0; j < kPageTokens; ++j) {
      f32x16 values[kVectors];
      load_values(j, values);
      for (int r = 0; r < kRows; ++r) {
        const f32x16 p = splat(w.p[first_row + r][j]);
        for (int i = 0; i < kVectors; ++i) o[r][i] = fma(p, values[i], o[r][i]);
      }
    }
  } else {
    for (; any != 0; any &= any - 1) {
      const int j = __builtin_ctzll(any);
      f32x16 values[kVectors];
      load_values(j, values);
      for (int r = 0; r < kRows; ++r) {
        if (!((w.masks[first_row + r] >> j) & 1)) continue;
        const f32x16 p = splat(w.p[first_row + r][j]);
        for (int i = 0; i < kVectors; ++i) o[r][i] = fma(p, values[i], o[r][i]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    if (w.masks[first_row + r] == 0) continue;
    for (int i = 0; i < kVectors; ++i)
      merge_output(w, first_row + r, o[r][i], w.out[first_row + r] + first_dim + 16 * i, kVectors > 1 ? 16 : dims);
  }
}

template <class KV, int kRows>
static inline void rows_values(const AttentionTask& task, const void* v, const void* next, int first_row,
                               const BlockRows& w) {
  int d = 0;
  if constexpr (kAttentionVectors > 1) {
    for (; d + 16 * kAttentionVectors <= task.head_dim; d += 16 * kAttentionVectors)
      block_values<KV, kRows, kAttentionVectors>(task, v, next, first_row, d, 16, w);
  }
  for (; d < task.head_dim; d += 16) block_values<KV, kRows, 1>(task, v, next, first_row, d, task.head_dim - d, w);
}

// work.template operator()<kRows>(first_row) for all rows, as many at a time as the registers hold.
template <class Work>
static inline void for_row_blocks(int num_rows, Work&& work) {
  int row = 0;
  for (; row + kAttentionRows <= num_rows; row += kAttentionRows) work.template operator()<kAttentionRows>(row);
  if constexpr (kAttentionRows > 4) {
    for (; row + 4 <= num_rows; row += 4) work.template operator()<4>(row);
  }
  if constexpr (kAttentionRows > 2) {
    for (; row + 2 <= num_rows; row += 2) work.template operator()<2>(row);
  }
  for (; row < num_rows; ++row) work.template operator()<1>(row);
}

template <class KV>
static inline void all_scores(const AttentionTask& task, const void* k, const void* next, BlockRows& w) {
  for_row_blocks(task.num_rows, [&]<int kRows>(int row) { block_scores<KV, kRows>(task, k, next, row, w); });
}

template <class KV>
static inline void all_values(const AttentionTask& task, const void* v, const void* next, const BlockRows& w) {
  for_row_blocks(task.num_rows, [&]<int kRows>(int row) { rows_values<KV, kRows>(task, v, next, row, w); });
}

// Codes times their scales, as KVWide reads them: worth it where many rows follow.
template <class KV>
static inline void widen_k(const AttentionTask& task, const void* k, const void* next) {
  for (int tile = 0; tile < kTiles; ++tile) {
    for (int d = 0, run = 0; d < task.head_dim; ++run) {
      const auto scale = KV::k_scale(k, task.head_dim, run, tile);
      const int end = task.head_dim - d < KV::kRun ? task.head_dim : d + KV::kRun;
      for (; d < end; ++d) {
        const std::int64_t index = 16 * (static_cast<std::int64_t>(tile) * task.head_dim + d);
        __builtin_prefetch(static_cast<const std::uint8_t*>(next) + index * KV::kBytes, 0, 2);
        store(task.scratch + index, KV::load_kv(k, index, scale));
      }
    }
  }
}

template <class KV>
static inline void widen_v(const AttentionTask& task, const void* v, const void* next) {
  for (int j = 0; j < kPageTokens; ++j) {
    for (int d = 0; d < task.head_dim; d += 16) {
      const std::int64_t index = static_cast<std::int64_t>(j) * task.head_dim + d;
      __builtin_prefetch(static_cast<const std::uint8_t*>(next) + index * KV::kBytes, 0, 2);
      const auto scale = KV::v_scale(v_scales(task), d / KV::kRun, j);
      if (task.head_dim - d >= 16) {
        store(task.scratch + index, KV::load_kv(v, index, scale));
      } else {
        store_first(task.scratch + index, KV::load_kv_first(v, index, task.head_dim - d, scale), task.head_dim - d);
      }
    }
  }
}

static inline float* attention_partial(const AttentionTask& task, int block, int row) {
  return task.partials + (static_cast<std::int64_t>(block) * task.num_rows + row) * partial_stride(task.head_dim);
}

// More rows than this read a block that is widened once.
constexpr int kNarrowRows = 2 * kAttentionRows;

// What the tasks before this one left.
static inline void start_rows(const AttentionTask& task, RowStates& states) {
  for (int row = 0; row < task.num_rows; ++row) {
    states.is_empty[row] = task.is_first || task.states[row]->sum == 0.0f;
    if (states.is_empty[row]) continue;
    states.maximum[row] = task.states[row]->maximum;
    states.sum[row] = task.states[row]->sum;
  }
}

// Divides by the sums, or leaves that to the tasks that follow.
static inline void finish_rows(const AttentionTask& task, const RowStates& states) {
  if (!task.is_last) {
    for (int row = 0; row < task.num_rows; ++row) {
      task.states[row]->maximum = states.maximum[row];
      task.states[row]->sum = states.is_empty[row] ? 0.0f : states.sum[row];
    }
    return;
  }
  for (int row = 0; row < task.num_rows; ++row) {
    float* out = task.out[row];
    const float sum = states.sum[row];
    if (states.is_empty[row]) {
      for (int d = 0; d < task.head_dim; ++d) out[d] = 0.0f;
    } else {
      for_each_vector(task.head_dim, out, [&](auto at) { return div(at(out), splat(sum)); });
    }
    if (task.log_sum_exp) {
      const double log_sum = static_cast<double>(states.maximum[row]) + edgert::math::log(sum);
      task.log_sum_exp[row] = states.is_empty[row] ? -__builtin_inff() : static_cast<float>(log_sum);
    }
  }
}

template <class KV>
static inline void attend(const AttentionTask& task) {
  RowStates states;
  BlockRows w;
  start_rows(task, states);
  for (int r = 0; r < task.num_rows; ++r) {
    w.is_first[r] = true;
    w.out[r] = task.out[r];
  }
  const bool is_wide = KV::kBytes < 4 && task.num_rows > kNarrowRows;
  for (int b = 0; b < task.num_blocks; ++b) {
    const KVBlock& block = task.blocks[b];
    const KVBlock& next = task.blocks[b + 1 < task.num_blocks ? b + 1 : b];
    w.masks = task.masks + static_cast<std::int64_t>(b) * task.num_rows;
    prefetch_scales<KV>(next.k, task.head_dim);
    prefetch_scales<KV>(next.v, task.head_dim);
    if (is_wide) {
      widen_k<KV>(task, block.k, next.k);
      all_scores<KVWide>(task, task.scratch, task.scratch, w);
    } else {
      all_scores<KV>(task, block.k, next.k, w);
    }
    for (int r = 0; r < task.num_rows; ++r) {
      if (w.masks[r] != 0) block_softmax(w, r);
    }
    if (task.partials == nullptr) {
      merge_states(task.num_rows, w, states);
    } else {
      for (int r = 0; r < task.num_rows; ++r) {
        float* partial = attention_partial(task, b, r);
        partial[0] = w.maximum[r];
        partial[1] = w.sum[r];
        w.out[r] = partial + kPartialOutput;
      }
    }
    if constexpr (KV::kBytes == 1) widen_v_scales(task, block.v);
    if (is_wide) {
      widen_v<KV>(task, block.v, next.v);
      all_values<KVWide>(task, task.scratch, task.scratch, w);
    } else {
      all_values<KV>(task, block.v, next.v, w);
    }
  }
  if (task.partials == nullptr) finish_rows(task, states);
}

static void attention(const AttentionTask& task) {
  switch (task.format) {
    case KVFormat::f32:
      return attend<KVF32>(task);
    case KVFormat::f16:
      return attend<KVF16>(task);
    case KVFormat::q8_0:
      return attend<KVQ8>(task);
  }
}

// What `attention` left in the partials, block by block.
static void merge_attention(const AttentionTask& task) {
  RowStates states;
  BlockRows w;
  start_rows(task, states);
  for (int b = 0; b < task.num_blocks; ++b) {
    w.masks = task.masks + static_cast<std::int64_t>(b) * task.num_rows;
    for (int r = 0; r < task.num_rows; ++r) {
      w.maximum[r] = attention_partial(task, b, r)[0];
      w.sum[r] = attention_partial(task, b, r)[1];
    }
    merge_states(task.num_rows, w, states);
    for (int r = 0; r < task.num_rows; ++r) {
      if (w.masks[r] == 0) continue;
      const float* block_out = attention_partial(task, b, r) + kPartialOutput;
      // The partials are padded to whole vectors.
      for (int d = 0; d < task.head_dim; d += 16)
        merge_output(w, r, load(block_out + d), task.out[r] + d, task.head_dim - d);
    }
  }
  finish_rows(task, states);
}

// The codes of up to 32 values and their scale: the rule of quantised activations, the scale rounded to f16.
static inline std::uint16_t quantize_kv_run(const float* x, int n, std::int8_t* codes) {
  const f32x16 v[2] = {n >= 16 ? load(x) : load_first(x, n, 0.0f), n >= 32  ? load(x + 16)
                                                                   : n > 16 ? load_first(x + 16, n - 16, 0.0f)
                                                                            : zero()};
  float scale;
  std::int32_t sums[2];
  quantize_run<2>(v, codes, &scale, sums);
  return f16_from_float(scale);
}

// Writes one vector of a head: value d goes to index place(d), the scale of a run of q8_0 to the `slot` of the run.
template <class Place>
static inline void store_kv(KVFormat format, const float* x, int head_dim, int slot, void* block, Place place) {
  for (int d = 0; d < head_dim; d += kKVRun) {
    const int n = head_dim - d < kKVRun ? head_dim - d : kKVRun;
    if (format == KVFormat::f32) {
      for (int i = 0; i < n; ++i) static_cast<float*>(block)[place(d + i)] = x[d + i];
    } else if (format == KVFormat::f16) {
      alignas(64) std::uint16_t halves[kKVRun];
      for (int i = 0; i < n; i += 16)
        store_f16(halves + i, n - i >= 16 ? load(x + d + i) : load_first(x + d + i, n - i, 0.0f));
      for (int i = 0; i < n; ++i) static_cast<std::uint16_t*>(block)[place(d + i)] = halves[i];
    } else {
      alignas(64) std::int8_t codes[kKVRun];
      const std::uint16_t scale = quantize_kv_run(x + d, n, codes);
      for (int i = 0; i < n; ++i) static_cast<std::int8_t*>(block)[place(d + i)] = codes[i];
      auto* scales = reinterpret_cast<std::uint16_t*>(static_cast<std::int8_t*>(block) + kPageTokens * head_dim);
      scales[kPageTokens * (d / kKVRun) + slot] = scale;
    }
  }
}

static void store_k(KVFormat format, const float* k, int head_dim, int slot, void* block_k) {
  const std::int64_t base = static_cast<std::int64_t>(slot / 16) * head_dim * 16 + slot % 16;
  store_kv(format, k, head_dim, slot, block_k, [base](int d) { return base + 16 * d; });
}

static void store_v(KVFormat format, const float* v, int head_dim, int slot, void* block_v) {
  const std::int64_t base = static_cast<std::int64_t>(slot) * head_dim;
  store_kv(format, v, head_dim, slot, block_v, [base](int d) { return base + d; });
}
