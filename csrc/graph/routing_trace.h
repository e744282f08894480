// What the routers of a model chose while it ran, for offload's simulator.
#pragma once
#include <cstdint>
#include <vector>

namespace edgert {

// Rows are tokens in the order in which they ran.
struct RoutingTrace {
  struct Layer {
    std::int32_t num_experts = 0, top_k = 0;
    std::vector<std::int16_t> experts;  // [tokens][top_k], ascending; -1 behind them for those dropped
    std::vector<float> weights;         // [tokens][top_k]
    // The layer's router on the input of the layer before it, [tokens][num_experts]; empty where that cannot be.
    std::vector<float> gate_logits;
  };
  std::vector<Layer> layers;  // mixture-of-experts layers in the order of a step
};

}  // namespace edgert
