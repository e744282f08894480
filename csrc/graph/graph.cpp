#include "graph/graph.h"

#include <stdexcept>

namespace edgert {
namespace {

constexpr std::int32_t kMaxWidth = 1 << 24;

struct Checker {
  const Graph& graph;
  const WeightStore& store;
  std::size_t index;

  [[noreturn]] void fail(const std::string& what) const {
    throw std::invalid_argument("graph node " + std::to_string(index) + ": " + what);
  }
  void require(bool condition, const char* what) const {
    if (!condition) fail(what);
  }
  const Node& node() const { return graph.nodes[index]; }
  std::int32_t input_width(std::size_t i) const {
    return graph.nodes[static_cast<std::size_t>(node().inputs[i])].width;
  }
  void count(std::size_t num_inputs, std::size_t min_weights, std::size_t max_weights) const {
    require(node().inputs.size() == num_inputs, "wrong number of inputs");
    require(node().weights.size() >= min_weights && node().weights.size() <= max_weights, "wrong number of weights");
  }
  void weight(std::size_t i, std::int32_t rows, std::int32_t cols) const {
    const WeightView& view = store.describe(node().weights[i]);
    if (view.rows == rows && view.cols == cols) return;
    fail(store.name(node().weights[i]) + ": found shape " + std::to_string(view.rows) + " x " +
         std::to_string(view.cols) + ", expected " + std::to_string(rows) + " x " + std::to_string(cols));
  }
  void same_width(std::size_t i) const { require(input_width(i) == node().width, "input and output differ in width"); }

  void check() const {
    const Node& n = node();
    const NodeAttributes& a = n.attributes;
    require(n.width > 0 && n.width <= kMaxWidth, "width out of range");
    for (const std::int32_t input : n.inputs)
      require(input >= 0 && static_cast<std::size_t>(input) < index, "input is not an earlier node");
    for (const WeightId id : n.weights)
      require(id >= 0 && static_cast<std::size_t>(id) < store.num_weights(), "unknown weight");
    switch (n.op) {
      case Op::embed:
        count(0, 1, 1);
        require(store.describe(n.weights[0]).cols == n.width, "table and width differ");
        break;
      case Op::rms_norm:
        count(1, 1, 1);
        same_width(0);
        require(a.head_dim >= 0 && (a.head_dim == 0 || n.width % a.head_dim == 0),
                "head_dim does not divide the width");
        weight(0, a.head_dim > 0 ? a.head_dim : n.width, 0);
        break;
      case Op::linear:
        count(1, 1, 2);
        weight(0, n.width, input_width(0));
        if (n.weights.size() == 2) weight(1, n.width, 0);
        break;
      case Op::rope:
        count(1, 0, 0);
        same_width(0);
        require(a.rope >= 0 && static_cast<std::size_t>(a.rope) < graph.ropes.size(), "unknown rope");
        require(a.head_dim > 0 && n.width % a.head_dim == 0, "head_dim does not divide the width");
        require(graph.ropes[static_cast<std::size_t>(a.rope)].rotary_dim <= a.head_dim, "rotary_dim exceeds head_dim");
        break;
      case Op::attention:
        count(3, 0, 0);
        require(a.layer >= 0 && a.layer < 4096, "layer out of range");
        require(a.num_kv_heads > 0 && a.num_heads > 0 && a.num_heads % a.num_kv_heads == 0, "heads do not divide");
        require(a.head_dim > 0 && a.head_dim <= 1024, "head_dim out of range");
        require(n.width == a.num_heads * a.head_dim && input_width(0) == n.width, "query width differs");
        require(input_width(1) == a.num_kv_heads * a.head_dim && input_width(2) == input_width(1), "KV width differs");
        require(a.window >= 0 && a.sinks >= 0, "window out of range");
        break;
      case Op::add:
      case Op::silu_mul:
      case Op::gelu_mul:
        count(2, 0, 0);
        same_width(0);
        same_width(1);
        break;
      case Op::relu2:
      case Op::scale:
        count(1, 0, 0);
        same_width(0);
        break;
      case Op::soft_cap:
        count(1, 0, 0);
        same_width(0);
        require(a.soft_cap > 0, "soft_cap is not positive");
        break;
      case Op::moe:
        require(a.num_experts > 0 && a.top_k > 0 && a.top_k <= a.num_experts, "top_k out of range");
        require(a.min_expert_weight >= 0 && a.min_expert_weight <= 1, "min_expert_weight out of range");
        require(a.intermediate_size > 0 && a.intermediate_size <= kMaxWidth, "intermediate_size out of range");
        count(2, 3 * static_cast<std::size_t>(a.num_experts), 3 * static_cast<std::size_t>(a.num_experts));
        same_width(0);
        require(input_width(1) == a.num_experts, "router width differs");
        for (std::size_t e = 0; e < static_cast<std::size_t>(a.num_experts); ++e) {
          weight(3 * e, a.intermediate_size, n.width);
          weight(3 * e + 1, a.intermediate_size, n.width);
          weight(3 * e + 2, n.width, a.intermediate_size);
        }
        break;
    }
  }
};

}  // namespace

void validate(const Graph& graph, const WeightStore& store) {
  if (graph.output < 0 || static_cast<std::size_t>(graph.output) >= graph.nodes.size())
    throw std::invalid_argument("graph: no output");
  std::size_t last_attention = graph.nodes.size();
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    Checker{graph, store, i}.check();
    if (graph.nodes[i].op == Op::attention) last_attention = i;
  }
  // Behind the last attention a step knows only the rows whose logits are asked for, not their tokens and positions.
  if (static_cast<std::size_t>(graph.output) <= last_attention)
    throw std::invalid_argument("graph: expected an attention node before the output");
  for (std::size_t i = last_attention; i < graph.nodes.size(); ++i)
    if (graph.nodes[i].op == Op::rope || graph.nodes[i].op == Op::embed)
      throw std::invalid_argument("graph: found rope or embed behind the last attention");
}

}  // namespace edgert
