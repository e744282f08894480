// Runs a recorded routing through an ExpertCache, with a clock and a disk that are only imagined.
#pragma once
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "weights/expert_cache.h"

namespace edgert {

struct SimulatorOptions {
  double disk_bytes_per_s = 1e9;
  double latency_s = 0;        // that whoever waits for a read waits beyond the rate
  double layer_s = 0;          // compute of a layer, with all experts in memory
  double before_router = 0.5;  // share of it that comes before the router
  double token_s = 0;          // compute of a token outside of these layers
  std::size_t num_fills = 0;   // experts that an idle disk reads into memory that is free, at a time
};

struct SimulatorResult {
  std::int64_t num_tokens = 0;
  double elapsed_s = 0, compute_s = 0, stall_s = 0, disk_s = 0;
  std::vector<double> layer_stall_s;
};

// The disk serves one expert at a time, in the order of asking; a read that has begun is finished. What the router
// wants goes before what is predicted by itself: when a layer routes, its wrong predictions leave the queue, and those
// of the next layer come after, and what fills free memory last. A layer computes when all of its experts are there.
class ExpertSimulator {
 public:
  // Throws std::invalid_argument for a rate or a time that is none.
  ExpertSimulator(ExpertCache& cache, const SimulatorOptions& options);

  // Goes on with these tokens. token_ids: of each, or empty. gate_logits: [num_tokens][num_layers][num_experts], those
  // of a layer made before the layer routes; empty: none. Layer 0 has none in any case.
  void run(const RoutingView& routing, std::span<const std::int32_t> token_ids, std::span<const float> gate_logits);
  const SimulatorResult& result() const { return result_; }

 private:
  void run_layer(const RoutingView& routing, std::int32_t token, std::int32_t layer,
                 std::span<const float> gate_logits);
  void order(const CacheDecision& decision);
  void fill(std::int32_t layer);
  void prefetch(const RoutingView& routing, std::int32_t token, std::int32_t layer, std::span<const float> gate_logits);
  bool drop(ExpertRef expert);
  void start_read(double now_s);
  void finish_read();
  void advance();
  void wait_for(std::int32_t layer);

  ExpertCache& cache_;
  const SimulatorOptions options_;
  SimulatorResult result_;
  double now_s_ = 0;
  std::deque<ExpertRef> queue_, fills_;  // reads that have not begun: those come first, and what fills free memory
  bool is_reading_ = false, is_filling_ = false;
  ExpertRef reading_;
  double read_end_s_ = 0;
  std::vector<std::int32_t> experts_, next_experts_;  // of the layer at hand, of the one after it
};

}  // namespace edgert
