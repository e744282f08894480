// The layer's own router, applied to the input of the layer before it (Fate): neighbouring layers see nearly the same
// residual stream. Several tokens: likely is what any of them may choose. Where no logits are given (the first layer of
// a token), what the layer chose at the token before.
#include <algorithm>
#include <cmath>

#include "weights/predictors/list.h"

namespace edgert {
namespace {

class CrossLayerGate final : public ExpertPredictor {
 public:
  explicit CrossLayerGate(const PredictorInputs& inputs)
      : top_k_(inputs.top_k), previous_(make_previous_token(inputs)) {}
  void routed(std::int32_t layer, std::span<const std::int32_t> experts, std::span<const float> weights) override {
    previous_->routed(layer, experts, weights);
  }
  void predict(std::int32_t layer, const PredictionHints& hints, std::span<float> likely) override {
    if (hints.gate_logits.empty()) return previous_->predict(layer, hints, likely);
    std::fill(likely.begin(), likely.end(), 0.0f);
    for (std::size_t first = 0; first + likely.size() <= hints.gate_logits.size(); first += likely.size())
      add_token(hints.gate_logits.subspan(first, likely.size()), likely);
  }

 private:
  // An expert with the share s of the softmax is taken to be among top_k draws with 1 - (1 - s) ** top_k.
  void add_token(std::span<const float> logits, std::span<float> likely) const {
    const float top = *std::max_element(logits.begin(), logits.end());
    float sum = 0.0f;
    for (const float logit : logits) sum += std::exp(logit - top);
    for (std::size_t e = 0; e < likely.size(); ++e) {
      const float share = std::exp(logits[e] - top) / sum;
      likely[e] = 1.0f - (1.0f - likely[e]) * std::pow(1.0f - share, static_cast<float>(top_k_));
    }
  }

  const std::int32_t top_k_;
  const std::unique_ptr<ExpertPredictor> previous_;
};

}  // namespace

std::unique_ptr<ExpertPredictor> make_cross_layer_gate(const PredictorInputs& inputs) {
  return std::make_unique<CrossLayerGate>(inputs);
}

}  // namespace edgert
