// The compiled graph: steps in order, their buffers in one arena, and where a step must wait for those before it.
#pragma once
#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "kernels/kernel_table.h"

namespace edgert {

enum class StepKind : std::uint8_t {
  rope_tables,
  embed,
  rms_norm,
  quantize,
  linear,
  rope,
  store_kv,
  attention,
  add,
  silu_mul,
  gelu_mul,
  relu2,
  scale,
  soft_cap,
  gather,     // the rows whose logits are asked for
  moe_route,  // the experts of each token and their weights
  moe_sort,   // the tokens of each expert
  moe_gate_up,
  moe_act,
  moe_down,
  moe_combine,
};

const char* step_kind_name(StepKind kind);

// Whose rows a buffer has: every token, the tokens whose logits are asked for, or top_k for each of either.
enum class Rows : std::uint8_t { tokens, logits, token_experts, logit_experts };

// A range of the arena. float32: [rows][stride]. Quantised: codes [rows][stride], then scales [rows][stride /
// scale_columns], then sums [rows][stride / 64], then tables [stride / 64] of one token (top_k of them for experts).
struct Buffer {
  Rows rows = Rows::tokens;
  std::int32_t width = 0;   // values of a row
  std::int32_t stride = 0;  // width rounded up to 64
  std::int64_t num_bytes = 0;
  std::int64_t offset = 0;
  std::int32_t scale_columns = 0;                   // quantised buffers: columns that share a scale
  std::int64_t scales_offset = 0, sums_offset = 0;  // quantised buffers, from `offset`
  std::int64_t tables_offset = 0;                   // 0: no kernel reads tables of this input
  std::int32_t first_step = 0, last_step = 0;
  bool is_carried = false;  // from one segment to the next: has a row for every token of a step, not of a round
};

// Index of Step::quantized that a weight format reads; -1: it reads floats.
inline int codes_index(Format format) {
  const int columns = spec(format).activation_columns;
  return columns == 0 ? -1 : columns == kGroupColumns ? 0 : 1;
}

struct Step {
  StepKind kind = StepKind::embed;
  std::int32_t node = -1;
  std::int32_t in[3] = {-1, -1, -1};  // buffers
  std::int32_t out = -1;              // buffer; kLogits for the logits
  // linear, moe: the input's codes with a scale for 64 and for 32 columns, or -1 where no weight reads them.
  std::int32_t quantized[2] = {-1, -1};
  std::int32_t moe = -1;  // index into Plan::moes
  Rows rows = Rows::tokens;
  bool is_parallel_alone = false;  // worth all threads even for one token
};

inline constexpr std::int32_t kLogits = -2;

// Buffers of one mixture-of-experts node.
struct MoePlan {
  std::int32_t experts = -1;    // int32 [rows][top_k], ascending; -1 behind them for those that are dropped
  std::int32_t weights = -1;    // float32 [rows][top_k]
  std::int32_t slots = -1;      // int32 [rows][top_k]: where the pair's result lies; -1: there is none
  std::int32_t slot_rows = -1;  // int32 [rows * top_k]: which row a slot reads, experts in ascending order
  // int32: first slot of each expert [num_experts + 1], then the active experts in ascending order, ended by -1.
  std::int32_t ranges = -1;
  std::int32_t gate = -1, up = -1, down = -1;  // float32 [rows of a round * top_k][...]
  std::int32_t act[2] = {-1, -1};              // codes of silu(gate) * up, as Step::quantized
  bool reads_values = false;                   // an expert reads its input as floats, or has outliers
};

struct Plan {
  std::vector<Step> steps;
  std::vector<Buffer> buffers;
  std::vector<MoePlan> moes;
  std::int64_t arena_bytes = 0;
  // First steps of the segments: ranges of steps between which only one buffer of floats is carried on. The tokens of a
  // long step go through each of them in rounds of round_rows, so that what it multiplies with is needed but once.
  // Where experts are streamed, a mixture from moe_sort to moe_combine is a segment of its own, which runs once for all
  // rounds.
  std::vector<std::int32_t> segments;
  std::int32_t round_rows = 0, max_rows = 0;
  // One flag a step: what the steps since the last flag do must be complete before it. Alone: with one token thread 0
  // runs the cheap steps by itself, in order: handing them to others costs more than they do.
  std::vector<char> barrier, barrier_alone;
};

// max_rows: tokens of a step; round_rows: of a round, at most max_rows.
Plan compile(const Graph& graph, const WeightStore& store, const KernelTable& kernels, std::int32_t round_rows,
             std::int32_t max_rows);

// The matrices of a plan in the order of their use.
std::vector<WeightStream::Use> weight_uses(const Plan& plan, const Graph& graph);

}  // namespace edgert
