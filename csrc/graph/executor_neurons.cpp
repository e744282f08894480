// Products with a matrix of which only the columns of active neurons are read.
#include <algorithm>
#include <utility>
#include <vector>

#include "graph/executor.h"

namespace edgert {
namespace {

// Parts of a range: a thread waits for the records of one, while those of the next arrive.
constexpr std::int32_t kParts = 8;

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

}  // namespace

bool Executor::is_streamed_by_neurons(const Step& step) const {
  if (step.kind != StepKind::linear) return false;
  NeuronStream* neurons = store_.stream()->neurons();
  return neurons != nullptr && neurons->has(graph_.nodes[at(step.node)].weights[0]);
}

bool Executor::is_counted(const Step& step) const {
  return are_neurons_counted_ && step.kind == StepKind::linear &&
         store_.is_by_neuron(graph_.nodes[at(step.node)].weights[0]);
}

void Executor::start_neuron_counts() {
  neuron_counts_.clear();
  for (const Node& node : graph_.nodes)
    if (node.op == Op::linear && store_.is_by_neuron(node.weights[0]))
      neuron_counts_.push_back(
          {node.weights[0], 0,
           std::vector<std::uint32_t>(static_cast<std::size_t>(store_.describe(node.weights[0]).cols))});
  are_neurons_counted_ = true;
}

std::vector<NeuronCounts> Executor::stop_neuron_counts() {
  are_neurons_counted_ = false;
  return std::exchange(neuron_counts_, {});
}

// How many rows have a code that is not 0 in each column. REQUIRES: the steps before it are done.
void Executor::count_active(const Step& step) {
  const WeightId id = graph_.nodes[at(step.node)].weights[0];
  const WeightView& weight = store_.describe(id);
  const LinearInput x = linear_input(step.in[0], step.quantized, weight.format, num_rows(step.rows));
  num_active_.assign(at(weight.groups) * at(kGroupColumns), 0);
  for (std::int32_t t = 0; t < x.tokens; ++t) {
    const std::int8_t* codes = x.codes + codes_offset(t, x.tile_vectors, x.codes_stride);
    for (std::int32_t g = 0; g < weight.groups; ++g, codes += codes_step(x.tile_vectors))
      for (std::int32_t i = 0; i < kGroupColumns; ++i) num_active_[at(g * kGroupColumns + i)] += codes[i] != 0;
  }
  if (!are_neurons_counted_) return;
  const auto has_weight = [id](const NeuronCounts& counts) { return counts.weight == id; };
  NeuronCounts& counts = *std::find_if(neuron_counts_.begin(), neuron_counts_.end(), has_weight);
  counts.num_tokens += x.tokens;
  for (std::size_t i = 0; i < counts.active.size(); ++i) counts.active[i] += num_active_[i];
}

// Range by range of groups, as their columns have room. REQUIRES: the steps before it are done.
void Executor::run_neurons(NeuronStream& neurons, std::size_t index) {
  const Step& step = plan_.steps[index];
  count_active(step);
  neurons.begin(graph_.nodes[at(step.node)].weights[0], num_active_, num_rows(step.rows));
  while (neurons.next(first_group_, last_group_)) run_steps(index, index + 1);
}

void Executor::linear_neurons(const Step& step, std::int32_t begin, std::int32_t end) {
  const Node& node = graph_.nodes[at(step.node)];
  const WeightId id = node.weights[0];
  const WeightView& weight = store_.describe(id);
  const LinearInput x = linear_input(step.in[0], step.quantized, weight.format, num_rows(step.rows));
  LinearOutput y{.y = row(step.out, 0), .stride = stride(step.out)};
  if (node.weights.size() == 2) y.bias = reinterpret_cast<const float*>(store_.pin(node.weights[1]).parts[0]);
  NeuronStream& neurons = *store_.stream()->neurons();
  const ActiveNeurons active = neurons.active();
  for (std::int32_t part = 0, first = first_group_; part < kParts && first < last_group_; ++part) {
    const std::int32_t last = first_group_ + (last_group_ - first_group_) * (part + 1) / kParts;
    if (last == first) continue;
    if (!neurons.wait(first, last)) return;
    kernels_.neurons[static_cast<int>(weight.format)](weight, x, y, active, first, last, begin, end);
    first = last;
  }
}

}  // namespace edgert
