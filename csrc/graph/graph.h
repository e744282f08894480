// What a model computes: nodes in order of execution (built by edgert/graph.py).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "graph/rope.h"
#include "weights/store.h"

namespace edgert {

enum class Op : std::uint8_t {
  embed,
  rms_norm,
  linear,
  rope,
  attention,
  add,
  silu_mul,
  gelu_mul,
  relu2,
  scale,     // scale * x
  soft_cap,  // cap * tanh(x / cap)
  moe,
};

struct NodeAttributes {
  float eps = 0, weight_offset = 0;  // rms_norm
  std::int32_t head_dim = 0;
  std::int32_t rope = 0;  // index into Graph::ropes
  std::int32_t layer = 0, num_heads = 0, num_kv_heads = 0, window = 0, sinks = 0;
  float scale = 0, soft_cap = 0;  // attention, and the operations of these names
  std::int32_t num_experts = 0, top_k = 0, intermediate_size = 0;
  bool normalize = false;
  float min_expert_weight = 0;  // experts with a smaller share of a token's weight are dropped, but for the likeliest
};

struct Node {
  Op op = Op::embed;
  std::vector<std::int32_t> inputs;  // indices of earlier nodes
  std::vector<WeightId> weights;
  NodeAttributes attributes;
  std::int32_t width = 0;  // float32 values a token has in the output
};

struct Graph {
  std::vector<Node> nodes;
  std::vector<RopeSpec> ropes;
  std::int32_t output = -1;

  std::int32_t vocab_size() const { return nodes[static_cast<std::size_t>(output)].width; }
};

// Throws std::invalid_argument unless every index, width and weight shape fits.
void validate(const Graph& graph, const WeightStore& store);

}  // namespace edgert
