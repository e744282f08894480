#include "weights/expert_simulator.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace edgert {
namespace {

constexpr double kTick = 1e-9;  // sums of the same times may differ by their rounding

bool same(ExpertRef a, ExpertRef b) { return a.layer == b.layer && a.expert == b.expert; }

}  // namespace

ExpertSimulator::ExpertSimulator(ExpertCache& cache, const SimulatorOptions& options)
    : cache_(cache), options_(options) {
  if (!(options.disk_bytes_per_s > 0) || !(options.layer_s >= 0) || !(options.token_s >= 0) ||
      !(options.latency_s >= 0) ||
      !std::isfinite(options.disk_bytes_per_s + options.latency_s + options.layer_s + options.token_s))
    throw std::invalid_argument("simulator: found a disk of " + std::to_string(options.disk_bytes_per_s) +
                                " bytes/s, layers of " + std::to_string(options.layer_s) +
                                " s, expected a rate above 0 and times of 0 or more");
  result_.layer_stall_s.resize(static_cast<std::size_t>(cache_.shape().num_layers));
}

void ExpertSimulator::run(const RoutingView& routing, std::span<const std::int32_t> token_ids,
                          std::span<const float> gate_logits) {
  const ExpertShape& shape = cache_.shape();
  if (routing.num_layers != shape.num_layers)
    throw std::invalid_argument("routing: found " + std::to_string(routing.num_layers) + " layers, expected " +
                                std::to_string(shape.num_layers));
  for (const std::int16_t expert : routing.experts)
    if (expert < 0 || expert >= shape.num_experts)
      throw std::invalid_argument("routing: found expert " + std::to_string(expert) + ", expected 0 to " +
                                  std::to_string(shape.num_experts - 1));
  for (std::int32_t token = 0; token < routing.num_tokens; ++token) {
    cache_.begin_step(token_ids.empty() ? token_ids : token_ids.subspan(static_cast<std::size_t>(token), 1));
    advance();
    prefetch(routing, token, 0, {});
    for (std::int32_t layer = 0; layer < shape.num_layers; ++layer) run_layer(routing, token, layer, gate_logits);
    now_s_ += options_.token_s;
    result_.compute_s += options_.token_s;
    ++result_.num_tokens;
  }
  result_.elapsed_s = now_s_;
}

void ExpertSimulator::run_layer(const RoutingView& routing, std::int32_t token, std::int32_t layer,
                                std::span<const float> gate_logits) {
  now_s_ += options_.layer_s * options_.before_router;
  advance();
  const auto row = routing.row(token, layer);
  experts_.assign(row.begin(), row.end());
  const CacheDecision decision = cache_.route(layer, experts_, routing.row_weights(token, layer));
  if (decision.num_deferred > 0) throw std::logic_error("simulator: the experts of one token do not fit");
  for (const ExpertRef expert : decision.cancel)
    if (drop(expert)) cache_.cancelled(expert.layer, expert.expert);
  order(decision);
  if (layer + 1 < cache_.shape().num_layers) prefetch(routing, token, layer + 1, gate_logits);
  wait_for(layer);
  now_s_ += options_.layer_s * (1 - options_.before_router);
  result_.compute_s += options_.layer_s;
  cache_.release(layer);
  advance();
  fill(layer);
}

void ExpertSimulator::fill(std::int32_t layer) {
  while (fills_.size() + (is_filling_ ? 1 : 0) < options_.num_fills) {
    const CacheDecision decision = cache_.fill(layer);
    if (decision.load.empty()) return;
    fills_.push_back(decision.load[0]);
    start_read(now_s_);
  }
}

// gate_logits: empty where the layer before has not routed yet.
void ExpertSimulator::prefetch(const RoutingView& routing, std::int32_t token, std::int32_t layer,
                               std::span<const float> gate_logits) {
  const auto row = routing.row(token, layer);
  next_experts_.assign(row.begin(), row.end());
  PredictionHints hints{.gate_logits = {}, .known_experts = next_experts_};
  if (!gate_logits.empty()) {
    const auto first = static_cast<std::size_t>(cache_.shape().slot(token * cache_.shape().num_layers + layer, 0));
    hints.gate_logits = gate_logits.subspan(first, static_cast<std::size_t>(cache_.shape().num_experts));
  }
  order(cache_.prefetch(layer, hints));
}

void ExpertSimulator::order(const CacheDecision& decision) {
  queue_.insert(queue_.end(), decision.load.begin(), decision.load.end());
  start_read(now_s_);
}

// False: its read has begun.
bool ExpertSimulator::drop(ExpertRef expert) {
  const auto it = std::find_if(queue_.begin(), queue_.end(), [&](ExpertRef other) { return same(expert, other); });
  if (it == queue_.end()) return false;
  queue_.erase(it);
  return true;
}

void ExpertSimulator::start_read(double now_s) {
  if (is_reading_ || (queue_.empty() && fills_.empty())) return;
  is_filling_ = queue_.empty();
  std::deque<ExpertRef>& queue = is_filling_ ? fills_ : queue_;
  reading_ = queue.front();
  queue.pop_front();
  is_reading_ = true;
  const double read_s =
      static_cast<double>(cache_.expert_bytes(reading_.layer, reading_.expert)) / options_.disk_bytes_per_s;
  read_end_s_ = now_s + read_s;
  result_.disk_s += read_s;
}

void ExpertSimulator::finish_read() {
  is_reading_ = is_filling_ = false;
  cache_.arrived(reading_.layer, reading_.expert);
  start_read(read_end_s_);
}

// What has ended by now.
void ExpertSimulator::advance() {
  while (is_reading_ && read_end_s_ <= now_s_ + kTick) finish_read();
}

void ExpertSimulator::wait_for(std::int32_t layer) {
  const auto is_missing = [&](std::int32_t expert) { return cache_.state(layer, expert) != ExpertState::resident; };
  double ready_s = now_s_;
  while (std::any_of(experts_.begin(), experts_.end(), is_missing)) {
    if (!is_reading_) throw std::logic_error("simulator: found nothing to wait for");
    ready_s = std::max(ready_s, read_end_s_ + options_.latency_s);
    finish_read();
  }
  result_.stall_s += ready_s - now_s_;
  result_.layer_stall_s[static_cast<std::size_t>(layer)] += ready_s - now_s_;
  now_s_ = ready_s;
}

}  // namespace edgert
