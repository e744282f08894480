// A loaded model that runs steps: the graph's executor, its KV cache and its threads.
#pragma once
#include <cstdint>
#include <memory>
#include <span>

#include "graph/executor.h"

namespace edgert {

struct RuntimeOptions {
  const KernelTable* kernels = nullptr;
  std::int32_t num_threads = 1;
  std::int32_t batch_tokens = 512;  // most tokens of a step
  std::int32_t context = 0;         // most positions of a sequence
  KVFormat kv_format = KVFormat::f16;
  std::int64_t kv_budget_bytes = 0;
  LinearChoiceOptions choice = {};
};

// Rows of float32 logits. The next step overwrites them; `memory` keeps the address valid.
struct Logits {
  std::shared_ptr<const Memory> memory;
  const float* values = nullptr;
  std::int64_t num_rows = 0, stride = 0;
  std::int32_t vocab_size = 0;
};

// Not thread-safe: one caller at a time.
class Runtime {
 public:
  // REQUIRES: the store is loaded and outlives the runtime. Throws std::invalid_argument if graph and weights do not
  // fit.
  Runtime(Graph graph, std::shared_ptr<const WeightStore> store, const RuntimeOptions& options);

  KVStore& kv() { return *kv_; }
  const KVStore& kv() const { return *kv_; }
  std::int32_t vocab_size() const { return graph_.vocab_size(); }
  std::int32_t batch_tokens() const { return options_.batch_tokens; }
  std::int64_t activation_bytes() const { return executor_->arena_bytes(); }
  const std::vector<LinearPick>& linear_picks() const { return executor_->choice().picks(); }

  // Could these many tokens be appended to each of the sequences at once?
  bool can_reserve(std::span<const std::pair<SequenceId, std::int32_t>> appends) const;
  // Appends every span to its sequence and computes the logits asked for, span after span.
  // Throws std::invalid_argument (a span is malformed) or std::length_error (no pages left); nothing has changed then.
  Logits step(std::span<const Span> spans);

  // Between the two, thread 0 notes what each step of the plan takes.
  void start_profile() { executor_->start_profile(); }
  Profile stop_profile() { return executor_->stop_profile(); }
  // Between the two, what the routers choose is kept: 2 bytes + 4 a choice, 4 an expert.
  void start_routing_trace() { executor_->start_routing_trace(); }
  RoutingTrace stop_routing_trace() { return executor_->stop_routing_trace(); }
  const WeightStore& store() const { return *store_; }

 private:
  void check(const Span& span, std::int32_t num_tokens_before) const;
  void lay_out(std::span<const Span> spans);

  const Graph graph_;
  const std::shared_ptr<const WeightStore> store_;
  const RuntimeOptions options_;
  std::int32_t embedding_rows_ = 0;
  std::unique_ptr<KVStore> kv_;
  std::unique_ptr<Executor> executor_;
  std::shared_ptr<Memory> logits_ = std::make_shared<Memory>();
};

}  // namespace edgert
