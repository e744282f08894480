// Which experts a coming layer will want: one small file for each predictor, found by name. The true router has the
// last word, so a predictor changes when experts are read and never what is computed.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weights/routing.h"

namespace edgert {

// What the caller knows about a layer that has not routed yet; all of it may be missing.
struct PredictionHints {
  // The layer's router applied to the input of the layer before it: [num_tokens][num_experts].
  std::span<const float> gate_logits = {};
  // The experts that it will choose, where that is known already.
  std::span<const std::int32_t> known_experts = {};
};

class ExpertPredictor {
 public:
  virtual ~ExpertPredictor() = default;
  // The tokens of the step that begins.
  virtual void begin_step(std::span<const std::int32_t> /*tokens*/) {}
  // The router of a layer chose these; layers come in order, then those of the next token.
  virtual void routed(std::int32_t layer, std::span<const std::int32_t> experts, std::span<const float> weights) = 0;
  // Writes how likely each expert of the layer is: in [0, 1], higher first; all zeros is "no idea".
  virtual void predict(std::int32_t layer, const PredictionHints& hints, std::span<float> likely) = 0;
};

struct PredictorInputs {
  ExpertShape shape = {};
  std::int32_t top_k = 1;
  RoutingView profile = {};  // table: a recorded routing of other text
};

// Throws std::invalid_argument for an unknown name, or where a predictor lacks an input.
std::unique_ptr<ExpertPredictor> make_predictor(const std::string& name, const PredictorInputs& inputs);
std::vector<std::string> predictor_names();

}  // namespace edgert
