// What a mixture-of-experts model's routers chose, as policies, predictors and the simulator see it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace edgert {

struct ExpertShape {
  std::int32_t num_layers = 0;   // mixture-of-experts layers, in the order in which a step runs them
  std::int32_t num_experts = 0;  // of each layer
  std::int32_t num_slots() const { return num_layers * num_experts; }
  std::int32_t slot(std::int32_t layer, std::int32_t expert) const { return layer * num_experts + expert; }
};

struct ExpertRef {
  std::int32_t layer = 0, expert = 0;
};

// A recorded routing: experts and weights are [num_tokens][num_layers][top_k], experts ascend in each row.
struct RoutingView {
  std::int32_t num_tokens = 0, num_layers = 0, top_k = 0;
  std::span<const std::int16_t> experts = {};
  std::span<const float> weights = {};
  std::span<const std::int16_t> row(std::int32_t token, std::int32_t layer) const {
    return experts.subspan(offset(token, layer), static_cast<std::size_t>(top_k));
  }
  std::span<const float> row_weights(std::int32_t token, std::int32_t layer) const {
    return weights.subspan(offset(token, layer), static_cast<std::size_t>(top_k));
  }

 private:
  std::size_t offset(std::int32_t token, std::int32_t layer) const {
    return (static_cast<std::size_t>(token) * static_cast<std::size_t>(num_layers) + static_cast<std::size_t>(layer)) *
           static_cast<std::size_t>(top_k);
  }
};

}  // namespace edgert
