#include "kernels/single.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace edgert {

WeightView view_of_parts(Format format, std::int32_t rows, std::int32_t cols, const std::uint8_t* const* parts) {
  const FormatSpec& s = spec(format);
  WeightView w;
  w.format = format;
  w.rows = rows;
  w.cols = cols;
  w.strips = (rows + kStripRows - 1) / kStripRows;
  w.groups = (cols + kGroupColumns - 1) / kGroupColumns;
  w.row_bytes = s.is_float ? std::int64_t{cols} * s.part_bytes[0] : 0;
  std::copy(parts, parts + s.num_parts, w.parts.begin());
  return w;
}

PreparedInput::PreparedInput(const KernelTable& kernels, const float* x, std::int32_t tokens, std::int32_t cols,
                             int scale_columns) {
  const std::int64_t groups = padded_columns(cols) / kGroupColumns;
  num_scales_ = scale_columns == 32 ? 2 * groups : groups;
  input_.tokens = tokens;
  input_.values_stride = round_up(cols, 16);
  input_.codes_stride = groups * kGroupColumns;
  input_.group_stride = groups;
  values_ = Memory(static_cast<std::size_t>(tokens * input_.values_stride) * sizeof(float));
  input_.tile_vectors = tile_vectors(tokens);
  const std::int64_t vectors = round_up(tokens, input_.tile_vectors);
  codes_ = Memory(static_cast<std::size_t>(vectors * input_.codes_stride));
  scales_ = Memory(static_cast<std::size_t>(vectors * num_scales_) * sizeof(float));
  sums_ = Memory(static_cast<std::size_t>(vectors * groups) * sizeof(GroupSums));
  if (tokens == 1) tables_ = Memory(static_cast<std::size_t>(groups) * sizeof(LutTables));
  for (std::int64_t t = 0; t < tokens; ++t) {
    const float* row = x + t * cols;
    std::copy(row, row + cols, values_.as<float>() + t * input_.values_stride);
    if (scale_columns == 0) continue;
    kernels.quantize(
        row, cols, scale_columns, codes_.as<std::int8_t>() + codes_offset(t, input_.tile_vectors, input_.codes_stride),
        codes_step(input_.tile_vectors), scales_.as<float>() + t * num_scales_, sums_.as<GroupSums>() + t * groups);
    if (tokens == 1) kernels.build_tables(codes_.as<std::int8_t>(), cols, tables_.as<LutTables>());
  }
  input_.values = values_.as<float>();
  input_.codes = codes_.as<std::int8_t>();
  input_.scales = scales_.as<float>();
  input_.sums = sums_.as<GroupSums>();
  if (tokens == 1 && scale_columns != 0) input_.tables = tables_.as<LutTables>();
}

namespace {

LinearFunction kernel_function(const LinearKernels& kernels, const LinearInput& x, const char* name) {
  if (name == nullptr) return linear_function(kernels, x);
  for (const LinearKernel& kernel : kernels) {
    if (kernel.name == nullptr || std::strcmp(kernel.name, name) != 0) continue;
    if (kernel.min_tokens <= x.tokens && x.tokens <= kernel.max_tokens) return kernel.run;
  }
  throw std::invalid_argument(std::string("kernel: found ") + name + ", which takes no " + std::to_string(x.tokens) +
                              " tokens here");
}

}  // namespace

void run_linear(const KernelTable& kernels, const WeightView& w, const float* x, std::int32_t tokens, const float* bias,
                float* y, const char* kernel) {
  const PreparedInput prepared(kernels, x, tokens, w.cols, spec(w.format).activation_columns);
  const std::int64_t stride = round_up(w.rows, kStripRows);
  Memory out(static_cast<std::size_t>(tokens * stride) * sizeof(float));
  Memory padded_bias(static_cast<std::size_t>(stride) * sizeof(float));
  LinearOutput output{out.as<float>(), stride, nullptr};
  if (bias != nullptr) {
    std::copy(bias, bias + w.rows, padded_bias.as<float>());
    output.bias = padded_bias.as<float>();
  }
  const LinearFunction function = kernel_function(kernels.linear[static_cast<int>(w.format)], prepared.input(), kernel);
  function(w, prepared.input(), output, 0, w.strips);
  for (std::int64_t t = 0; t < tokens; ++t) std::copy_n(output.y + t * stride, w.rows, y + t * w.rows);
}

void run_neurons(const KernelTable& kernels, const WeightView& w, const std::uint8_t* records, int bits, const float* x,
                 std::int32_t tokens, const float* bias, std::span<const int> bounds, float* y) {
  const PreparedInput prepared(kernels, x, tokens, w.cols, spec(w.format).activation_columns);
  const LinearInput& input = prepared.input();
  std::vector<std::int32_t> group_starts{0}, columns;
  std::vector<const std::uint8_t*> found;
  const auto is_active = [&](std::int32_t column) {
    for (std::int32_t t = 0; t < tokens; ++t) {
      const std::int8_t* codes = input.codes + codes_offset(t, input.tile_vectors, input.codes_stride);
      if (codes[column / kGroupColumns * codes_step(input.tile_vectors) + column % kGroupColumns] != 0) return true;
    }
    return false;
  };
  for (std::int32_t column = 0; column < w.cols; ++column) {
    if (is_active(column)) {
      columns.push_back(column);
      found.push_back(records + column * neuron_bytes(bits, w.rows));
    }
    if ((column + 1) % kGroupColumns == 0 || column + 1 == w.cols)
      group_starts.push_back(static_cast<std::int32_t>(columns.size()));
  }
  const ActiveNeurons active{group_starts.data(), columns.data(), found.data(), bits};
  const std::int64_t stride = std::int64_t{w.strips} * kStripRows;
  Memory out(static_cast<std::size_t>(tokens * stride) * sizeof(float));
  Memory padded(static_cast<std::size_t>(stride) * sizeof(float));
  if (bias != nullptr) std::copy(bias, bias + w.rows, padded.as<float>());
  const LinearOutput output{out.as<float>(), stride, bias != nullptr ? padded.as<float>() : nullptr};
  for (std::size_t i = 0; i < bounds.size(); ++i)
    kernels.neurons[static_cast<int>(w.format)](w, input, output, active, bounds[i],
                                                i + 1 < bounds.size() ? bounds[i + 1] : w.groups, 0, w.strips);
  for (std::int64_t t = 0; t < tokens; ++t) std::copy_n(out.as<float>() + t * stride, w.rows, y + t * w.rows);
}

void run_attention(const KernelTable& kernels, const AttentionArrays& a, float* out, float* log_sum_exp) {
  const std::int32_t num_blocks = (a.positions + kPageTokens - 1) / kPageTokens;
  const auto block_bytes = static_cast<std::size_t>(kv_block_bytes(a.format, a.head_dim));
  Memory pages(2 * block_bytes * static_cast<std::size_t>(num_blocks));
  std::vector<KVBlock> blocks;
  std::vector<std::uint64_t> masks(static_cast<std::size_t>(num_blocks) * static_cast<std::size_t>(a.rows), 0);
  for (std::int64_t p = 0; p < a.positions; ++p) {
    const auto block = static_cast<std::size_t>(p / kPageTokens);
    const int slot = static_cast<int>(p % kPageTokens);
    std::uint8_t* k = pages.data() + 2 * block * block_bytes;
    if (slot == 0) blocks.push_back({k, k + block_bytes});
    kernels.store_k(a.format, a.k + p * a.head_dim, a.head_dim, slot, k);
    kernels.store_v(a.format, a.v + p * a.head_dim, a.head_dim, slot, k + block_bytes);
    for (std::int64_t r = 0; r < a.rows; ++r) {
      std::uint64_t& mask = masks[block * static_cast<std::size_t>(a.rows) + static_cast<std::size_t>(r)];
      if (a.mask[r * a.positions + p]) mask |= std::uint64_t{1} << slot;
    }
  }
  const Memory scratch(static_cast<std::size_t>(attention_scratch(a.head_dim)) * sizeof(float));
  AttentionTask task{.format = a.format,
                     .head_dim = a.head_dim,
                     .scale = a.scale,
                     .soft_cap = a.soft_cap,
                     .num_rows = a.rows,
                     .num_blocks = num_blocks,
                     .q = {},
                     .out = {},
                     .log_sum_exp = log_sum_exp,
                     .blocks = blocks.data(),
                     .masks = masks.data(),
                     .scratch = scratch.as<float>(),
                     .partials = nullptr,
                     .states = {}};
  for (std::int64_t r = 0; r < a.rows; ++r) {
    task.q[r] = a.q + r * a.head_dim;
    task.out[r] = out + r * a.head_dim;
  }
  if (!a.by_parts) return kernels.attention(task);
  const std::int64_t block_floats = a.rows * partial_stride(a.head_dim);
  const Memory partials(static_cast<std::size_t>(num_blocks * block_floats) * sizeof(float));
  // One block a call, in descending order: nothing may depend on which comes first.
  for (std::int32_t b = num_blocks - 1; b >= 0; --b) {
    AttentionTask part = task;
    part.num_blocks = 1;
    part.blocks += b;
    part.masks += std::int64_t{b} * a.rows;
    part.partials = partials.as<float>() + b * block_floats;
    kernels.attention(part);
  }
  task.partials = partials.as<float>();
  kernels.merge_attention(task);
}

}  // namespace edgert
