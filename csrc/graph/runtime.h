// A loaded model that runs steps: the graph's executor, its KV cache and its threads.
#pragma once
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "graph/executor.h"

namespace edgert {

struct RuntimeOptions {
  const KernelTable* kernels = nullptr;
  std::int32_t num_threads = 1;
  std::int32_t batch_tokens = 512;  // most tokens of a step
  std::int32_t round_tokens = 0;    // of a round, where weights are streamed (graph/plan.h); 0: as batch_tokens
  std::int32_t context = 0;         // most positions of a sequence
  KVFormat kv_format = KVFormat::f16;
  std::int64_t kv_budget_bytes = 0;  // of all pages
  KVSpill kv_spill = {};             // which of them stay in memory
  LinearChoiceOptions choice = {};
};

// Rows of float32 logits. The next step overwrites them; `memory` keeps the address valid.
struct Logits {
  std::shared_ptr<const Memory> memory;
  const float* values = nullptr;
  std::int64_t num_rows = 0, stride = 0;
  std::int32_t vocab_size = 0;
};

// A step that was ended before its end.
struct Stopped : std::exception {
  const char* what() const noexcept override { return "the step was stopped"; }
};

// Not thread-safe but for stop(): one caller at a time.
class Runtime {
 public:
  // REQUIRES: the store is loaded and outlives the runtime. Throws std::invalid_argument if graph and weights do not
  // fit.
  Runtime(Graph graph, std::shared_ptr<const WeightStore> store, const RuntimeOptions& options);

  KVStore& kv() { return *kv_; }
  const KVStore& kv() const { return *kv_; }
  std::int32_t vocab_size() const { return graph_.vocab_size(); }
  // What was asked for, or less where several rounds cannot share what they stream.
  std::int32_t batch_tokens() const { return executor_->max_rows(); }
  std::int64_t activation_bytes() const { return executor_->arena_bytes(); }
  const std::vector<LinearPick>& linear_picks() const { return executor_->choice().picks(); }

  // Could these many tokens be appended to each of the sequences at once?
  bool can_reserve(std::span<const std::pair<SequenceId, std::int32_t>> appends) const;
  // And does memory hold what one step writes for them? Always for one sequence.
  bool can_write(std::span<const std::pair<SequenceId, std::int32_t>> appends) const;
  // Appends every span to its sequence and computes the logits asked for, span after span.
  // Throws std::invalid_argument (a span is malformed), std::length_error (no pages left), std::system_error (pages
  // cannot be written to disk), and, where weights or pages are read from disk, ReadError or Stopped; nothing has
  // changed then. should_stop: asked now and then while the disk is waited for, and between the rounds.
  Logits step(std::span<const Span> spans, const std::function<bool()>& should_stop = nullptr);
  // From any thread: ends the step that runs, if it reads from disk, and the reads that belong to it.
  void stop();

  // Between the two, thread 0 notes what each step of the plan takes.
  void start_profile() { executor_->start_profile(); }
  Profile stop_profile() { return executor_->stop_profile(); }
  // Between the two, what thread 0 does is kept with its time; reads of weights, keys and values, and waits as well.
  void start_trace();
  std::pair<StepTrace, StreamTrace> stop_trace();
  // Between the two, what the routers choose is kept: 2 bytes + 4 a choice, 4 an expert.
  void start_routing_trace() { executor_->start_routing_trace(); }
  RoutingTrace stop_routing_trace() { return executor_->stop_routing_trace(); }
  // Between the two, it is counted how many tokens activate each neuron: 4 bytes a neuron.
  void start_neuron_counts() { executor_->start_neuron_counts(); }
  std::vector<NeuronCounts> stop_neuron_counts() { return executor_->stop_neuron_counts(); }
  const WeightStore& store() const { return *store_; }

 private:
  void check(const Span& span, std::int32_t num_tokens_before) const;
  void lay_out(std::span<const Span> spans, std::int32_t first, std::int32_t num_tokens);
  void run_streamed(std::span<const Span> spans, std::int32_t num_tokens, std::int32_t num_step_logits,
                    const std::function<bool()>& should_stop);
  void run_pass(std::span<const Span> spans, std::int32_t first, std::int32_t num_tokens, std::int32_t num_logits,
                float* logits, const std::function<bool()>& should_stop);
  void begin_kv_pass(std::span<const Span> spans, std::int32_t first, std::int32_t num_tokens,
                     const std::function<bool()>& should_stop);
  bool end_kv_pass();

  const Graph graph_;
  const std::shared_ptr<const WeightStore> store_;
  const RuntimeOptions options_;
  std::int32_t embedding_rows_ = 0;
  std::unique_ptr<KVStore> kv_;
  std::unique_ptr<Executor> executor_;
  std::vector<KVRead> kv_reads_;  // of a pass
  std::int64_t other_bytes_ = 0;  // of memory, beside weights: what the step computes with, keys and values
  std::shared_ptr<Memory> logits_ = std::make_shared<Memory>();
};

}  // namespace edgert
