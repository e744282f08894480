// What the layer chose at the token before, the larger weight first.
#include <algorithm>
#include <vector>

#include "weights/predictors/list.h"

namespace edgert {
namespace {

class PreviousToken final : public ExpertPredictor {
 public:
  explicit PreviousToken(const ExpertShape& shape)
      : shape_(shape), likely_(static_cast<std::size_t>(shape.num_slots())) {}
  void routed(std::int32_t layer, std::span<const std::int32_t> experts, std::span<const float> weights) override {
    float* likely = &likely_[static_cast<std::size_t>(shape_.slot(layer, 0))];
    std::fill_n(likely, shape_.num_experts, 0.0f);
    for (std::size_t i = 0; i < experts.size(); ++i)
      likely[experts[i]] = 0.5f + 0.5f * std::clamp(weights[i], 0.0f, 1.0f);
  }
  void predict(std::int32_t layer, const PredictionHints&, std::span<float> likely) override {
    std::copy_n(&likely_[static_cast<std::size_t>(shape_.slot(layer, 0))], likely.size(), likely.begin());
  }

 private:
  const ExpertShape shape_;
  std::vector<float> likely_;
};

}  // namespace

std::unique_ptr<ExpertPredictor> make_previous_token(const PredictorInputs& inputs) {
  return std::make_unique<PreviousToken>(inputs.shape);
}

}  // namespace edgert
