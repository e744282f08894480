// The steps of a mixture-of-experts node: route, sort, gate and up, activation, down, combine.
#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "graph/executor.h"

namespace edgert {
namespace {

constexpr std::int32_t kExpertStrips = 8;
// Tokens of a step up to which the experts of the next layer are predicted from its router: more want most of them.
constexpr std::int32_t kPredictedRows = 4;

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

}  // namespace

// The top_k experts by (logit descending, index ascending), then in ascending index; -1 behind them for each that is
// dropped as its share of their weight is too small.
void Executor::moe_route(const Step& step, std::int32_t r) {
  const NodeAttributes& a = graph_.nodes[at(step.node)].attributes;
  const MoePlan& moe = plan_.moes[at(step.moe)];
  float* logits = row(step.in[1], r);
  std::int32_t* experts = ints(moe.experts, r);
  for (std::int32_t k = 0; k < a.top_k; ++k) {
    std::int32_t best = -1;
    for (std::int32_t e = 0; e < a.num_experts; ++e) {
      if (std::find(experts, experts + k, e) != experts + k) continue;
      if (best < 0 || logits[e] > logits[best]) best = e;
    }
    experts[k] = best;
  }
  const std::int32_t likeliest = experts[0];
  std::sort(experts, experts + a.top_k);
  kernels_.softmax(logits, logits, a.num_experts);
  std::int32_t* end = experts + a.top_k;
  const auto sum_up = [&] {
    float sum = 0.0f;
    for (const std::int32_t* e = experts; e != end; ++e) sum += logits[*e];
    return sum;
  };
  float sum = sum_up();
  if (a.min_expert_weight > 0) {
    const auto is_dropped = [&](std::int32_t e) { return e != likeliest && logits[e] / sum < a.min_expert_weight; };
    end = std::remove_if(experts, end, is_dropped);
    std::fill(end, experts + a.top_k, -1);
    sum = sum_up();
  }
  float* weights = row(moe.weights, r);
  for (std::int32_t k = 0; k < a.top_k; ++k)
    weights[k] = experts[k] < 0 ? 0.0f : a.normalize ? logits[experts[k]] / sum : logits[experts[k]];
}

// That a row uses. REQUIRES: the step is moe_sort, or nothing behind it has run.
std::int32_t Executor::num_experts(const Step& step, std::int32_t r) const {
  const std::int32_t* experts = ints(plan_.moes[at(step.moe)].experts, r);
  return static_cast<std::int32_t>(std::find(experts, experts + attributes(step).top_k, -1) - experts);
}

// Counting sort of the (token, expert) pairs: slots of an expert are neighbours, experts and tokens ascend.
void Executor::moe_sort(const Step& step) {
  const NodeAttributes& a = graph_.nodes[at(step.node)].attributes;
  const MoePlan& moe = plan_.moes[at(step.moe)];
  const std::int32_t num = num_rows(step.rows);
  std::int32_t* first = ints(moe.ranges, 0);
  std::fill_n(first, a.num_experts + 1, 0);
  for (std::int32_t r = 0; r < num; ++r)
    for (std::int32_t k = 0; k < num_experts(step, r); ++k) ++first[ints(moe.experts, r)[k] + 1];
  for (std::int32_t e = 0; e < a.num_experts; ++e) first[e + 1] += first[e];
  std::int32_t* slot_rows = ints(moe.slot_rows, 0);
  for (std::int32_t r = 0; r < num; ++r) {
    std::fill_n(ints(moe.slots, r), a.top_k, -1);
    for (std::int32_t k = 0; k < num_experts(step, r); ++k) {
      const std::int32_t slot = first[ints(moe.experts, r)[k]]++;
      slot_rows[slot] = r;
      ints(moe.slots, r)[k] = slot;
    }
  }
  for (std::int32_t e = a.num_experts; e > 0; --e) first[e] = first[e - 1];
  first[0] = 0;
  std::int32_t* active = first + a.num_experts + 1;
  for (std::int32_t e = 0; e < a.num_experts; ++e)
    if (first[e + 1] > first[e]) *active++ = e;
  if (active < first + 2 * a.num_experts + 1) *active = -1;
  if (is_routing_traced_) trace_routing(step);
}

void Executor::start_routing_trace() {
  routing_trace_ = {};
  for (const Node& node : graph_.nodes)
    if (node.op == Op::moe)
      routing_trace_.layers.push_back({node.attributes.num_experts, node.attributes.top_k, {}, {}, {}});
  is_routing_traced_ = true;
}

RoutingTrace Executor::stop_routing_trace() {
  is_routing_traced_ = false;
  return std::exchange(routing_trace_, {});
}

// Behind the router of a layer: its choices in the order of rows, and what the next layer's router makes of its input.
void Executor::trace_routing(const Step& step) {
  const MoePlan& moe = plan_.moes[at(step.moe)];
  RoutingTrace::Layer& layer = routing_trace_.layers[at(step.moe)];
  const std::int32_t num = num_rows(step.rows);
  for (std::int32_t r = 0; r < num; ++r) {
    layer.experts.insert(layer.experts.end(), ints(moe.experts, r), ints(moe.experts, r) + layer.top_k);
    layer.weights.insert(layer.weights.end(), row(moe.weights, r), row(moe.weights, r) + layer.top_k);
  }
  if (at(step.moe) + 1 == routing_trace_.layers.size()) return;
  RoutingTrace::Layer& next = routing_trace_.layers[at(step.moe) + 1];
  std::vector<float> logits;
  if (next_gate(step, logits)) next.gate_logits.insert(next.gate_logits.end(), logits.begin(), logits.end());
}

// The logits of the next layer's router on this layer's input, [rows][num_experts] without padding. False: its weight
// reads codes that this step does not make, or its input is of another width.
bool Executor::next_gate(const Step& step, std::vector<float>& logits) {
  const auto is_moe = [](const Node& node) { return node.op == Op::moe; };
  const Node& here = graph_.nodes[at(step.node)];
  const auto next = std::find_if(graph_.nodes.begin() + step.node + 1, graph_.nodes.end(), is_moe);
  if (next == graph_.nodes.end()) return false;
  const Node& router = graph_.nodes[at(next->inputs[1])];
  if (router.op != Op::linear) return false;
  const WeightView& w = store_.pin(router.weights[0]);
  const int codes_of = codes_index(w.format);
  if (w.cols != here.width || (codes_of >= 0 && step.quantized[codes_of] < 0)) return false;
  const std::int32_t num = num_rows(step.rows);
  const LinearInput x = linear_input(step.in[0], step.quantized, w.format, num);
  const std::int64_t padded = round_up(router.width, kStripRows);
  logits.resize(static_cast<std::size_t>(num * padded));
  LinearOutput y{.y = logits.data(), .stride = padded};
  if (router.weights.size() == 2) y.bias = reinterpret_cast<const float*>(store_.pin(router.weights[1]).parts[0]);
  choice_.function(router.weights[0], x)(w, x, y, 0, w.strips);
  for (std::int32_t r = 1; r < num; ++r)
    std::copy_n(logits.begin() + r * padded, router.width, logits.begin() + std::int64_t{r} * router.width);
  logits.resize(static_cast<std::size_t>(num) * at(router.width));
  return true;
}

// Group by group, as the experts are there; those of several rounds in ascending order. Returns the step that follows.
// REQUIRES: the step that sorts them is done.
std::size_t Executor::run_experts(ExpertStream& experts, std::size_t sort) {
  const Step& step = plan_.steps[sort];
  const NodeAttributes& a = attributes(step);
  const MoePlan& moe = plan_.moes[at(step.moe)];
  const std::int32_t* active = ints(moe.ranges, 0) + a.num_experts + 1;
  group_.clear();
  for (std::int32_t i = 0; i < a.num_experts && active[i] >= 0; ++i) group_.push_back(active[i]);
  group_weights_.assign(group_.size(), 0.0f);
  for (std::int32_t r = 0; r < num_rows(step.rows); ++r)
    for (std::int32_t k = 0; k < num_experts(step, r); ++k) {
      const auto it = std::lower_bound(group_.begin(), group_.end(), ints(moe.experts, r)[k]);
      float& weight = group_weights_[static_cast<std::size_t>(it - group_.begin())];
      weight = std::max(weight, row(moe.weights, r)[k]);
    }
  const bool is_joint = num_rows(step.rows) > plan_.round_rows;
  gate_logits_.clear();
  if (!is_joint && num_rows(step.rows) <= kPredictedRows && !next_gate(step, gate_logits_)) gate_logits_.clear();
  experts.route(step.moe, group_, group_weights_, gate_logits_,
                is_joint ? ExpertOrder::ascending : ExpertOrder::resident_first);
  is_grouped_ = true;
  if (is_joint) {
    while (experts.next_group(visited_)) run_in_windows(sort);
  } else {
    while (experts.next_group(group_)) run_steps(sort + 1, sort + 4);
  }
  is_grouped_ = false;
  return sort + (is_joint ? 5 : 4);
}

// The visited experts of a pass of several rounds: as many slots at a time as a round has, combined at once. As experts
// ascend from visit to visit, so do those of each token.
void Executor::run_in_windows(std::size_t sort) {
  const Step& step = plan_.steps[sort];
  const std::int32_t* first = ints(plan_.moes[at(step.moe)].ranges, 0);
  const std::int32_t end = first[visited_.back() + 1];
  WeightStream& stream = *store_.stream();
  for (std::int32_t begin = first[visited_.front()]; begin < end && !stream.is_stopped();) {
    window_begin_ = begin;
    window_end_ = std::min(end, begin + plan_.round_rows * attributes(step).top_k);
    group_.clear();
    for (const std::int32_t expert : visited_)
      if (first[expert] < window_end_ && first[expert + 1] > window_begin_) group_.push_back(expert);
    run_steps(sort + 1, sort + 5);
    stream.poll();
    begin = window_end_;
  }
  window_begin_ = 0;
  window_end_ = kAllSlots;
}

// The slots [first, end) of an expert, as far as the window reaches.
std::pair<std::int32_t, std::int32_t> Executor::window_slots(const Step& step, std::int32_t expert) const {
  const std::int32_t* first = ints(plan_.moes[at(step.moe)].ranges, 0);
  return {std::max(first[expert], window_begin_), std::min(first[expert + 1], window_end_)};
}

namespace {

struct ExpertItems {
  std::int32_t chunks, matrices;
  ExpertItems(const Node& node, bool is_down)
      : chunks(((is_down ? node.width : node.attributes.intermediate_size) + kStripRows * kExpertStrips - 1) /
               (kStripRows * kExpertStrips)),
        matrices(is_down ? 1 : 2) {}
};

}  // namespace

// An item is a few strips of a matrix of an active expert; of how many experts is known only up to a bound.
std::int32_t Executor::num_moe_items(const Step& step, bool is_down) const {
  const Node& node = graph_.nodes[at(step.node)];
  const ExpertItems items(node, is_down);
  if (is_grouped_) return static_cast<std::int32_t>(group_.size()) * items.matrices * items.chunks;
  const std::int64_t pairs = std::int64_t{num_rows(step.rows)} * node.attributes.top_k;
  return static_cast<std::int32_t>(std::min<std::int64_t>(node.attributes.num_experts, pairs)) * items.matrices *
         items.chunks;
}

// Items of one matrix are one product: what is to be looked up for each is in no cache.
void Executor::moe_linear(const Step& step, std::int32_t first_item, std::int32_t last_item, bool is_down) {
  const ExpertItems items(graph_.nodes[at(step.node)], is_down);
  while (first_item < last_item) {
    const std::int32_t matrix = first_item / items.chunks;
    const std::int32_t end = std::min(last_item, (matrix + 1) * items.chunks);
    const std::int32_t chunk = first_item % items.chunks;
    moe_product(step, matrix / items.matrices, matrix % items.matrices, chunk * kExpertStrips,
                (chunk + end - first_item) * kExpertStrips, is_down);
    first_item = end;
  }
}

// Strips [first_strip, last_strip) of a matrix (gate and up, or down) of the index-th active expert, as far as there
// are.
void Executor::moe_product(const Step& step, std::int32_t index, std::int32_t matrix, std::int32_t first_strip,
                           std::int32_t last_strip, bool is_down) {
  const Node& node = graph_.nodes[at(step.node)];
  const NodeAttributes& a = node.attributes;
  const MoePlan& moe = plan_.moes[at(step.moe)];
  const std::int32_t* first = ints(moe.ranges, 0);
  const std::int32_t* active = first + a.num_experts + 1;
  // The list ends with -1; what lies behind it is not read.
  if (!is_grouped_ && std::find(active, active + index + 1, -1) != active + index + 1) return;
  const std::int32_t expert = is_grouped_ ? group_[at(index)] : active[index];
  const auto [begin_slot, end_slot] = window_slots(step, expert);
  const std::int32_t tokens = end_slot - begin_slot;
  const std::int32_t* slot_rows = ints(moe.slot_rows, 0);
  const WeightId id = node.weights[at(3 * expert + (is_down ? 2 : matrix))];
  const WeightView& weight = store_.describe(id);
  const Format format = weight.format;
  LinearInput x = is_down ? linear_input(moe.gate, moe.act, format, tokens)
                          : linear_input(step.in[0], step.quantized, format, tokens);
  if (is_down) {
    x.first_vector = begin_slot - window_begin_;
  } else {
    x.vector_rows = slot_rows + begin_slot;
  }
  const std::int32_t out = is_down ? moe.down : matrix == 0 ? moe.gate : moe.up;
  const LinearOutput y{.y = row(out, begin_slot - window_begin_), .stride = stride(out), .bias = nullptr};
  multiply(id, x, y, first_strip, std::min(weight.strips, last_strip));
}

std::int32_t Executor::num_group_slots(const Step& step) const {
  std::int32_t num = 0;
  for (const std::int32_t expert : group_) {
    const auto [begin, end] = window_slots(step, expert);
    num += end - begin;
  }
  return num;
}

// Item: a slot, or where experts come in groups, one of the group's.
void Executor::moe_act(const Step& step, std::int32_t item) {
  const NodeAttributes& a = graph_.nodes[at(step.node)].attributes;
  const MoePlan& moe = plan_.moes[at(step.moe)];
  const std::int32_t* first = ints(moe.ranges, 0);
  std::int32_t slot = item;
  if (is_grouped_) {
    auto expert = group_.begin();
    auto [begin, end] = window_slots(step, *expert);
    for (; slot >= end - begin; std::tie(begin, end) = window_slots(step, *++expert)) slot -= end - begin;
    slot += begin - window_begin_;
  }
  if (slot >= first[a.num_experts]) return;  // there are fewer where experts are dropped
  kernels_.silu_mul(row(moe.gate, slot), row(moe.up, slot), row(moe.gate, slot),
                    round_up(a.intermediate_size, kStripRows));
  for (const std::int32_t act : moe.act)
    if (act >= 0) quantize_row(moe.gate, act, slot);
}

void Executor::moe_combine(const Step& step, std::int32_t r) {
  const Node& node = graph_.nodes[at(step.node)];
  const MoePlan& moe = plan_.moes[at(step.moe)];
  float* y = row(step.out, r);
  if (window_begin_ == 0) std::fill_n(y, stride(step.out), 0.0f);
  for (std::int32_t k = 0; k < node.attributes.top_k; ++k) {
    const std::int32_t slot = ints(moe.slots, r)[k];
    if (slot >= window_begin_ && slot < window_end_)
      kernels_.add_scaled(row(moe.weights, r)[k], row(moe.down, slot - window_begin_), y, node.width);
  }
}

}  // namespace edgert
