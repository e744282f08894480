// One kernel at a time on plain arrays, with the padding and the layouts that a step prepares. Slow: for tests and the
// digest program.
#pragma once
#include <cstdint>
#include <span>

#include "base/memory.h"
#include "kernels/kernel_table.h"

namespace edgert {

// A rows x cols matrix whose parts begin at `parts`.
WeightView view_of_parts(Format format, std::int32_t rows, std::int32_t cols, const std::uint8_t* const* parts);

// The tokens of x [tokens][cols] as the kernels read them; they are quantised if scale_columns is 64 or 32, not if it
// is 0.
class PreparedInput {
 public:
  PreparedInput(const KernelTable& kernels, const float* x, std::int32_t tokens, std::int32_t cols, int scale_columns);
  const LinearInput& input() const { return input_; }
  std::int64_t num_scales() const { return num_scales_; }  // of a token

 private:
  Memory values_, codes_, scales_, sums_, tables_;
  LinearInput input_;
  std::int64_t num_scales_;
};

// y [tokens][rows] = x [tokens][cols] times the transposed weight, plus bias [rows] if it is given. kernel: the name of
// the one that multiplies; null: the first that takes the input. Throws std::invalid_argument if there is none.
void run_linear(const KernelTable& kernels, const WeightView& w, const float* x, std::int32_t tokens, const float* bias,
                float* y, const char* kernel = nullptr);

// The same with codes that lie in `records`, one for each column; only those of active neurons are read. bounds: where
// the ranges of groups begin that are multiplied one after the other, from 0 on.
void run_neurons(const KernelTable& kernels, const WeightView& w, const std::uint8_t* records, int bits, const float* x,
                 std::int32_t tokens, const float* bias, std::span<const int> bounds, float* y);

struct AttentionArrays {
  KVFormat format;
  std::int32_t rows, positions, head_dim;
  const float *q, *k, *v;  // [rows][head_dim], [positions][head_dim] twice
  const bool* mask;        // [rows][positions]
  float scale, soft_cap;
  bool by_parts;  // each block by itself, then merged
};
// out [rows][head_dim], log_sum_exp [rows]. REQUIRES: rows <= kMaxAttentionRows.
void run_attention(const KernelTable& kernels, const AttentionArrays& a, float* out, float* log_sum_exp);

}  // namespace edgert
