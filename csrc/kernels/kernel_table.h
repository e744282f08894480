// The kernels of one instruction set. A null entry, and a family of matrix products that is missing, come from the
// next lower level's table.
// Every entry gives the same bits on every instruction set (docs/numerics.md); the scalar table is the specification.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "formats/format.h"
#include "formats/kv.h"

namespace edgert {

// Exact sums of the activation codes of one group of 64 columns.
struct GroupSums {
  std::int32_t of16[4];
  std::int32_t of32[2];
  std::int32_t of64;
  std::uint32_t minus32;  // -of32[0] in the lower, -of32[1] in the upper 16 bits, as pair_dot reads them
};
// Two numbers of 16 bits as one factor of pair_dot.
inline std::uint32_t pair_of(std::int32_t first, std::int32_t second) {
  return (static_cast<std::uint32_t>(first) & 0xffff) | (static_cast<std::uint32_t>(second) << 16);
}

// Of each quad of a group of 64 activations the 16 sums that four bits choose: entry i of quad q is the sum of the
// codes whose bit is set in i, its low byte in low[16 q + i], the rest in high[16 q + i]. eighths: floor(sum / 8) + 64,
// from 0 to 127, for the kernel that rounds.
struct LutTables {
  alignas(64) std::uint8_t low[256];
  std::uint8_t high[256];
  std::uint8_t eighths[256];
};

// The codes of one vector lie as they are, those of several in tiles of 16 vectors: the groups of 64 columns one after
// the other, in each group the codes of its vectors. So whoever multiplies a group with them reads one run of bytes,
// which the hardware follows.
inline constexpr std::int32_t kTileVectors = 16;
inline std::int32_t tile_vectors(std::int32_t tokens) { return tokens < 2 ? 1 : kTileVectors; }
// Where the codes of a vector begin, in vectors of `stride` columns; those of group g follow at g * codes_step.
inline std::int64_t codes_offset(std::int64_t vector, std::int32_t tile_vectors, std::int64_t stride) {
  const std::int64_t in_tile = vector & (tile_vectors - 1);  // 1 or kTileVectors
  return (vector - in_tile) * stride + in_tile * kGroupColumns;
}
inline std::int64_t codes_step(std::int32_t tile_vectors) { return std::int64_t{tile_vectors} * kGroupColumns; }

// M input vectors. Quantised weights read codes, scales and sums; float weights and outliers read values.
struct LinearInput {
  const std::int8_t* codes = nullptr;  // as in codes_offset, 64-byte aligned, columns beyond K are 0
  const float* scales = nullptr;       // [vectors][group_stride * (64 / activation_columns of the format)]
  const GroupSums* sums = nullptr;     // [vectors][group_stride]
  const LutTables* tables = nullptr;   // [vectors][group_stride] or null: read by kernels with needs_tables
  const float* values = nullptr;       // [vectors][values_stride], values_stride >= K rounded up to 16, pad is 0
  std::int64_t codes_stride = 0, group_stride = 0, values_stride = 0;
  std::int32_t tile_vectors = 1;              // of codes: 1 or kTileVectors
  std::int32_t first_vector = 0;              // token m reads input vector first_vector + m,
  const std::int32_t* vector_rows = nullptr;  // or vector_rows[m] where this is not null
  std::int32_t tokens = 0;                    // M
};

inline std::int64_t vector_of(const LinearInput& x, std::int32_t token) {
  return x.vector_rows ? x.vector_rows[token] : x.first_vector + token;
}

// y[m][n] = dot, with the outliers of row n (of values), (+ bias[n]). Whole strips are written: stride >= rows rounded
// up to 16; rows beyond N get 0.
struct LinearOutput {
  float* y = nullptr;  // [tokens][stride]
  std::int64_t stride = 0;
  const float* bias = nullptr;  // [rows rounded up to 16] or null
};

// Strips [first_strip, last_strip) of y = W x. Any thread may take any range.
using LinearFunction = void (*)(const WeightView& w, const LinearInput& x, const LinearOutput& y, int first_strip,
                                int last_strip);

// Strips of y = W x, of its groups [first_group, last_group), with the bits of LinearFunction: calls for one range of
// strips follow each other in ascending groups, from 0 to all of them. w has no codes of its own.
using NeuronFunction = void (*)(const WeightView& w, const LinearInput& x, const LinearOutput& y,
                                const ActiveNeurons& neurons, int first_group, int last_group, int first_strip,
                                int last_strip);

// One way to multiply. All kernels of a format give the same bits unless they say is_rounded; which is the fastest
// depends on the machine, the shape and the number of tokens.
struct LinearKernel {
  // Of the family: "dot" (integer dots), "dot_wide" (several strips at a time), "lut" (tables of activations), "lut8"
  // (of 8 bits), "tile" (matrix units), "float", "tile_bf16" (matrix units in bfloat16); null: the end of a list.
  const char* name = nullptr;
  LinearFunction run = nullptr;
  std::int32_t min_tokens = 1, max_tokens = 1;  // for how many tokens it is written
  bool needs_tables = false;                    // reads LinearInput::tables
  bool is_rounded = false;                      // not the same bits: taken only where it is asked for by name
};
inline constexpr int kMaxLinearKernels = 8;
inline constexpr std::int32_t kAnyTokens = 0x7fffffff;
using LinearKernels = std::array<LinearKernel, kMaxLinearKernels>;  // the best guess first

// Whether a kernel is written for this input.
inline bool fits(const LinearKernel& kernel, const LinearInput& x) {
  return kernel.name && kernel.min_tokens <= x.tokens && x.tokens <= kernel.max_tokens &&
         (x.tables || !kernel.needs_tables);
}

// And gives everyone's bits.
inline bool takes(const LinearKernel& kernel, const LinearInput& x) { return !kernel.is_rounded && fits(kernel, x); }

// The first kernel of a list that takes the input. REQUIRES: there is one.
inline LinearFunction linear_function(const LinearKernels& kernels, const LinearInput& x) {
  for (const LinearKernel& kernel : kernels) {
    if (takes(kernel, x)) return kernel.run;
  }
  return nullptr;
}

inline bool needs_tables(const LinearKernels& kernels) {
  for (const LinearKernel& kernel : kernels) {
    if (kernel.name && kernel.needs_tables) return true;
  }
  return false;
}

// Columns that a row of codes takes: whole groups, and rows not a large power of two apart, which would fall into the
// same places of the first-level cache.
inline std::int64_t padded_columns(std::int64_t cols) {
  const std::int64_t columns = (cols + kGroupColumns - 1) / kGroupColumns * kGroupColumns;
  return columns % 512 == 0 ? columns + kGroupColumns : columns;
}

inline constexpr int kMaxAttentionRows = 96;

// What is known of a query row after some blocks. sum 0: nothing could be read yet.
struct AttentionState {
  float maximum, sum;
};

// Query rows that share a KV head. Bit j of masks[b * num_rows + r]: row r may read position j of block b.
// Blocks are merged in the order given; a block wholly masked for a row is skipped for it.
struct AttentionTask {
  KVFormat format;
  std::int32_t head_dim;
  float scale;            // scores = dot * scale
  float soft_cap;         // 0: none; else scores = cap * tanh(scores / cap)
  std::int32_t num_rows;  // 1..kMaxAttentionRows
  std::int32_t num_blocks;
  const float* q[kMaxAttentionRows];  // [head_dim]
  float* out[kMaxAttentionRows];      // [head_dim]; 0 where nothing may be read
  float* log_sum_exp;                 // [num_rows] or null: so that partial results merge
  const KVBlock* blocks;
  const std::uint64_t* masks;
  float* scratch;  // [attention_scratch(head_dim)]
  // [num_blocks][num_rows][partial_stride(head_dim)] or null. Not null: `attention` writes what each block gives there
  // and nothing to `out`; `merge_attention` makes the outputs of it. So the blocks may be divided between threads.
  float* partials;
  // Blocks may also come in several tasks, one after the other. `states`, one a row, then holds what is known after the
  // blocks so far, and `out` what is not divided by the sum yet.
  AttentionState* states[kMaxAttentionRows];  // read unless the task is the first and the last
  bool is_first = true, is_last = true;
};

// Floats that a thread needs for itself: a block of keys or values, and the scales of its values.
inline constexpr std::int64_t attention_scratch(std::int64_t head_dim) {
  return kPageTokens * (head_dim + kv_runs(head_dim));
}
// What a block gives a row: the maximum of the scores, the sum of the weights, and from kPartialOutput on the output.
inline constexpr std::int64_t kPartialOutput = 16;
inline constexpr std::int64_t partial_stride(std::int64_t head_dim) {
  return kPartialOutput + (head_dim + 15) / 16 * 16;
}

struct KernelTable {
  const char* name;

  // Every number of tokens is taken by a kernel of each format.
  LinearKernels linear[kNumFormats];
  NeuronFunction neurons[kNumFormats];  // null: the format's codes never lie neuron by neuron
  // One row of W as float32: y[cols rounded up to 16], pad 0.
  void (*dequantize_row[kNumFormats])(const WeightView& w, int row, float* y);

  // One vector of `cols` values to int8; codes are written up to cols rounded up to 64. A scale serves scale_columns
  // columns, 64 or 32: scales[ceil(cols / 64) * (64 / scale_columns)]. A format says which it reads
  // (FormatSpec::activation_columns): 32 where its own scales change every 32 columns and the float line runs there
  // anyway (blocks of 32: half the error of 64 for free), else 64. The rule is that of docs/numerics.md section 1 for
  // either width.
  // The codes of a group lie `step` bytes after those of the one before it.
  void (*quantize)(const float* x, int cols, int scale_columns, std::int8_t* codes, std::int64_t step, float* scales,
                   GroupSums* sums);
  // The tables of one quantised vector: one LutTables for each group.
  void (*build_tables)(const std::int8_t* codes, int cols, LutTables* tables);
  // y = x / sqrt(mean(x^2) + eps) * (weight + offset). In place is allowed.
  void (*rms_norm)(const float* x, const float* weight, float offset, float eps, int cols, float* y);
  // Rotates num_heads heads of one token in place, half-split pairs (i, i + rotary_dim / 2); cos, sin: [rotary_dim /
  // 2].
  void (*rope)(float* x, const float* cos, const float* sin, int num_heads, int head_dim, int rotary_dim);
  void (*add)(const float* a, const float* b, float* y, std::int64_t n);
  void (*silu_mul)(const float* gate, const float* up, float* y, std::int64_t n);  // silu(gate) * up
  void (*gelu_mul)(const float* gate, const float* up, float* y, std::int64_t n);  // gelu(gate) * up, the tanh form
  void (*relu2)(const float* x, float* y, std::int64_t n);                         // max(x, 0)^2
  void (*scale)(const float* x, float factor, float* y, std::int64_t n);           // factor * x
  void (*soft_cap)(const float* x, float cap, float* y, std::int64_t n);           // cap * tanh(x / cap)
  void (*add_scaled)(float factor, const float* x, float* y, std::int64_t n);      // y = fma(factor, x, y)
  void (*softmax)(const float* x, float* y, int n);                                // sums in 16 lanes and the tree
  float (*max)(const float* x, std::int64_t n);
  void (*exp_shifted)(const float* x, float shift, float factor, float* y,
                      std::int64_t n);  // exp((x - shift) * factor)
  // log(sum(exp(x))) in 16 lanes and the tree; max is the maximum of x.
  float (*log_sum_exp)(const float* x, float max, std::int64_t n);

  // Writes one token's key (or value) of one head at position `slot` (0..63) of a block.
  void (*store_k)(KVFormat format, const float* k, int head_dim, int slot, void* block_k);
  void (*store_v)(KVFormat format, const float* v, int head_dim, int slot, void* block_v);
  void (*attention)(const AttentionTask& task);
  void (*merge_attention)(const AttentionTask& task);  // of partials that `attention` wrote

  // The or of all 8-byte words; p is aligned to 64, num_bytes a multiple of 256. The measure of the memory's bandwidth.
  std::uint64_t (*read_memory)(const std::uint8_t* p, std::size_t num_bytes);
  // Float32 multiply-adds in registers on values [16]; returns their number. The measure of the arithmetic's peak.
  std::int64_t (*multiply_add)(float* values, std::int64_t rounds);
};

// Levels in ascending order per architecture: scalar avx2 avxvnni avx512 avx512vnni amx / scalar neon neon_dotprod
// neon_i8mm.
struct IsaLevel {
  const char* name;
  bool is_built;      // the compiler could build its file
  bool is_supported;  // by this CPU and operating system
};
int num_isa_levels();
IsaLevel isa_level(int index);
// The table for a level, complete (fallbacks filled in); null if the name is unknown, not built or not supported.
const KernelTable* kernel_table(const char* level_name);
// Name of the best supported level of this machine.
const char* best_isa_level();

}  // namespace edgert
