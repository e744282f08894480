// Runs a plan on all threads: no allocation, no exception, no Python inside a step.
#pragma once
#include <atomic>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "base/threads.h"
#include "graph/batch.h"
#include "graph/linear_choice.h"
#include "graph/neuron_counts.h"
#include "graph/plan.h"
#include "graph/routing_trace.h"
#include "graph/step_trace.h"
#include "graph/work.h"
#include "kernels/kernel_table.h"
#include "kv/kv_stream.h"

namespace edgert {

// A span as the steps see it: token i of it is row first_row + i, and lies at place base + i of its sequence.
struct SpanRows {
  const Span* span = nullptr;
  std::int32_t first_row = 0, num_rows = 0, base = 0;
};

// The rows of one round of a step; sized once for round_rows. Where a segment runs once for all rounds of a pass, only
// the first two lines count.
struct StepRows {
  std::int32_t num_tokens = 0, num_logits = 0, num_spans = 0;
  std::int32_t first_row = 0;                   // of the step's tokens
  std::int32_t num_pass_tokens = 0;             // of all rounds that go through a segment before the next one
  std::vector<std::int32_t> tokens, positions;  // [round_rows]
  std::vector<std::int32_t> logit_rows;         // rows whose logits are asked for
  std::vector<SpanRows> spans;
};

// What one step of the plan cost thread 0, summed over the runs of a profile.
struct StepTime {
  StepKind kind = StepKind::embed;
  WeightId weight = -1;  // of linear and embed: which one
  double working_s = 0;  // in its own share of the items
  double waiting_s = 0;  // for the others' share
};

struct Profile {
  std::int64_t num_runs = 0;
  double starting_s = 0;        // laying the work open and waking the helpers
  std::vector<StepTime> steps;  // in the order of the plan
};

class Executor {
 public:
  // Chooses the kernels of the products first: a step only looks them up. max_rows: tokens of a step; it has at most
  // round_rows where everything is resident, or several rounds cannot share what they stream.
  Executor(const Graph& graph, const WeightStore& store, KVStore& kv, const KernelTable& kernels, int num_threads,
           std::int32_t round_rows, std::int32_t max_rows, const LinearChoiceOptions& choice);

  StepRows& rows() { return rows_; }
  std::int32_t round_rows() const { return plan_.round_rows; }
  std::int32_t max_rows() const { return plan_.max_rows; }
  int num_segments() const { return static_cast<int>(plan_.segments.size()); }
  // Runs once for all rounds of a pass: a mixture whose experts are streamed.
  bool is_joint(int segment) const {
    const std::int32_t first = plan_.segments[static_cast<std::size_t>(segment)];
    return plan_.steps[static_cast<std::size_t>(first)].kind == StepKind::moe_sort;
  }
  // Runs every step of the plan for rows(). REQUIRES: the KV store has room for the spans; logits:
  // [num_logits][logits_stride()].
  void run(float* logits) { run(0, num_segments(), logits); }
  // The same for some segments. Where a pass of a stream was stopped, what is computed means nothing.
  void run(int first_segment, int last_segment, float* logits);
  // Adds what these segments read of keys and values on disk for rows(), in the order in which `run` needs it.
  void add_kv_reads(int first_segment, int last_segment, std::vector<KVRead>& reads) const;
  // From now on thread 0 notes the time between its steps; off, this costs a branch a step.
  void start_profile();
  Profile stop_profile();
  // The same with the moments of each run.
  void start_trace();
  StepTrace stop_trace();
  // From now on what the routers choose is kept.
  void start_routing_trace();
  RoutingTrace stop_routing_trace();
  bool is_routing_traced() const { return is_routing_traced_; }
  // From now on it is counted how many tokens activate each neuron.
  void start_neuron_counts();
  std::vector<NeuronCounts> stop_neuron_counts();
  std::int64_t logits_stride() const { return logits_stride_; }
  std::int64_t arena_bytes() const { return static_cast<std::int64_t>(arena_.num_bytes()); }
  // Before a step, where memory is short: the bytes of activations that it takes. What a larger step took is given
  // back.
  std::int64_t shrink_to(std::int32_t num_tokens, std::int32_t num_logits);
  const LinearChoice& choice() const { return choice_; }

 private:
  // Scratch of one thread for attention.
  struct Scratch {
    std::vector<KVBlock> blocks;
    std::vector<std::uint64_t> masks;
    Memory floats;
  };
  // How the attention of a step is divided: tiles of query rows that share a KV head, and where these are too few for
  // the threads, parts of the pages that a tile reads. The bits do not depend on it.
  struct AttentionWork {
    std::int32_t heads = 1, head_tiles = 1;  // query heads of a tile; tiles that the heads of one KV head make
    std::int32_t tokens = 1;                 // of a tile
    std::int32_t num_parts = 1;
    std::int32_t num_tiles(std::int32_t num_tokens) const { return (num_tokens + tokens - 1) / tokens * head_tiles; }
  };
  // What of the attention of a step is computed now: all of it, or one span's over some of its pages, chunk by chunk of
  // those that are on disk.
  struct AttentionPart {
    std::int32_t span = -1;  // -1: all
    std::int32_t begin_page = 0, end_page = std::numeric_limits<std::int32_t>::max();
    bool is_first = true, is_last = true;  // of the span
    const KVChunk* chunk = nullptr;
  };
  // Rows of one span that are computed together.
  struct AttentionTile {
    std::int32_t kv_head, first_head, num_heads, first_token, num_tokens;
    AttentionTile(const NodeAttributes& a, const AttentionWork& work, const SpanRows& span, std::int32_t kv_head_index,
                  std::int32_t tile);
  };

  // Where the quantised activations of a row lie. tables: null where there are none.
  struct QuantizedRow {
    std::int8_t* codes;
    float* scales;
    GroupSums* sums;
    LutTables* tables;
    std::int32_t tile_vectors;
    std::int64_t stride;  // of codes, between rows
  };

  class Laps;
  static constexpr std::int32_t kAllSlots = std::numeric_limits<std::int32_t>::max();

  void run_steps(std::size_t first, std::size_t last);
  std::size_t run_experts(ExpertStream& experts, std::size_t sort);
  void run_in_windows(std::size_t sort);
  bool is_by_neurons(const Step& step) const { return store_.stream() != nullptr && is_streamed_by_neurons(step); }
  bool is_streamed_by_neurons(const Step& step) const;
  void run_neurons(NeuronStream& neurons, std::size_t index);
  bool is_counted(const Step& step) const;
  void count_active(const Step& step);
  bool run_attention(KVStream& stream, std::size_t step);
  std::size_t first_step(int segment) const;
  KVRead kv_read(const Step& step, const SpanRows& span) const;
  void run_thread(int thread);
  bool wait_complete(std::size_t begin, std::size_t end, std::uint32_t run) const;
  std::int32_t num_items(std::size_t index);
  ChunkSizes chunk_sizes(const Step& step, std::int32_t total) const;
  void open_work(std::size_t index);
  void run_items(const Step& step, std::int32_t begin, std::int32_t end, int thread);
  void run_rows(const Step& step, std::int32_t begin, std::int32_t end, int thread);

  std::int32_t num_rows(Rows rows) const { return rows == Rows::tokens ? rows_.num_tokens : rows_.num_logits; }
  std::int64_t touched_bytes(std::int32_t num_tokens, std::int32_t num_logits) const;
  std::int64_t row_of(const Buffer& b, std::int32_t r) const { return b.is_carried ? rows_.first_row + r : r; }
  float* row(std::int32_t buffer, std::int32_t r) const;
  std::int64_t stride(std::int32_t buffer) const;
  void clear_pad(std::int32_t buffer, std::int32_t r, std::int32_t width) const;
  std::int32_t num_tokens(const Buffer& b) const;  // of the step whose values the buffer has
  QuantizedRow quantized_row(std::int32_t buffer, std::int32_t r) const;
  std::int64_t padded_width(const Step& step) const;
  const NodeAttributes& attributes(const Step& step) const {
    return graph_.nodes[static_cast<std::size_t>(step.node)].attributes;
  }
  void quantize_row(std::int32_t from, std::int32_t to, std::int32_t r) const;
  LinearInput linear_input(std::int32_t values, const std::int32_t (&codes_of)[2], Format format,
                           std::int32_t tokens) const;

  void embed(const Step& step, std::int32_t r, int thread);
  void linear(const Step& step, std::int32_t begin, std::int32_t end);
  void multiply(WeightId id, const LinearInput& x, const LinearOutput& y, std::int32_t begin, std::int32_t end) const;
  void linear_neurons(const Step& step, std::int32_t begin, std::int32_t end);
  void rms_norm(const Step& step, std::int32_t r);
  void rope(const Step& step, std::int32_t r);
  void store_kv(const Step& step, std::int32_t kv_head);
  void attention(const Step& step, std::int32_t item, int thread);
  void prepare_attention();
  AttentionWork divide_attention(const NodeAttributes& a, std::int32_t num_tokens, std::int32_t num_positions) const;
  std::int32_t divide_attention(std::size_t step);  // returns the number of items
  AttentionTask attention_task(const Step& step, const SpanRows& span, const AttentionTile& tile,
                               Scratch& scratch) const;
  void moe_route(const Step& step, std::int32_t r);
  std::int32_t num_experts(const Step& step, std::int32_t r) const;
  void moe_sort(const Step& step);
  std::int32_t num_moe_items(const Step& step, bool is_down) const;
  void moe_linear(const Step& step, std::int32_t first_item, std::int32_t last_item, bool is_down);
  void moe_product(const Step& step, std::int32_t index, std::int32_t matrix, std::int32_t first_strip,
                   std::int32_t last_strip, bool is_down);
  std::pair<std::int32_t, std::int32_t> window_slots(const Step& step, std::int32_t expert) const;
  std::int32_t num_group_slots(const Step& step) const;
  void moe_act(const Step& step, std::int32_t item);
  void moe_combine(const Step& step, std::int32_t r);
  void trace_routing(const Step& step);
  bool next_gate(const Step& step, std::vector<float>& logits);
  std::int32_t* ints(std::int32_t buffer, std::int32_t r) const {
    return reinterpret_cast<std::int32_t*>(row(buffer, r));
  }

  const Graph& graph_;
  const WeightStore& store_;
  KVStore& kv_;
  const KernelTable& kernels_;
  const LinearChoice choice_;
  const Plan plan_;
  std::atomic<std::size_t> first_step_{0}, last_step_{0};  // of the run
  std::vector<RopeFrequencies> ropes_;
  std::vector<std::int64_t> rope_offsets_;  // into rope_tables_, in floats: cos then sin of a row
  Memory arena_, rope_tables_;
  // The last step that was asked about and its bytes; most bytes of both that may hold something.
  std::int32_t asked_tokens_ = 0, asked_logits_ = 0;
  std::int64_t asked_bytes_ = 0, held_bytes_ = 0;
  std::vector<Scratch> scratch_;
  StepRows rows_;
  float* logits_ = nullptr;
  std::int64_t logits_stride_;
  std::vector<Work> works_;                     // one a step
  std::vector<AttentionWork> attention_works_;  // one a step
  Memory partials_;  // what the parts of a tile's pages give: [tiles][pages][rows] partial rows
  std::vector<std::atomic<std::int32_t>> parts_done_;  // one a tile; 0 between steps
  AttentionPart part_;
  Memory states_;  // of rows whose attention comes in parts: AttentionState [round_rows][query heads]
  // Where experts are streamed: those that the steps of a mixture compute now.
  bool is_grouped_ = false;
  std::vector<std::int32_t> group_, visited_;
  std::vector<float> group_weights_, gate_logits_;
  // The slots that the buffers of a mixture hold now: all of a round's, or some of a pass of several rounds.
  std::int32_t window_begin_ = 0, window_end_ = kAllSlots;
  // Where columns are read neuron by neuron: how many rows activate each, and the groups that a step multiplies with
  // now.
  std::vector<std::uint32_t> num_active_;
  std::int32_t first_group_ = 0, last_group_ = 0;
  Profile profile_;
  bool is_profiled_ = false;  // read by thread 0 only
  StepTrace trace_;
  bool is_traced_ = false;  // read by thread 0 only
  RoutingTrace routing_trace_;
  bool is_routing_traced_ = false;
  std::vector<NeuronCounts> neuron_counts_;
  bool are_neurons_counted_ = false;
  std::atomic<std::uint32_t> run_{0};
  std::atomic<bool> is_alone_{false};
  Team team_;  // last: its helpers end before what they read
};

}  // namespace edgert
