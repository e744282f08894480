// How often the layer has lately chosen each expert.
#include <algorithm>
#include <vector>

#include "weights/predictors/list.h"

namespace edgert {
namespace {

constexpr float kShare = 1.0f / 64;  // of one token in the running average

class Frequency final : public ExpertPredictor {
 public:
  explicit Frequency(const ExpertShape& shape) : shape_(shape), rate_(static_cast<std::size_t>(shape.num_slots())) {}
  void routed(std::int32_t layer, std::span<const std::int32_t> experts, std::span<const float>) override {
    float* rate = &rate_[static_cast<std::size_t>(shape_.slot(layer, 0))];
    for (std::int32_t e = 0; e < shape_.num_experts; ++e) rate[e] *= 1 - kShare;
    for (const std::int32_t expert : experts) rate[expert] += kShare;
  }
  void predict(std::int32_t layer, const PredictionHints&, std::span<float> likely) override {
    std::copy_n(&rate_[static_cast<std::size_t>(shape_.slot(layer, 0))], likely.size(), likely.begin());
  }

 private:
  const ExpertShape shape_;
  std::vector<float> rate_;  // of each expert: chosen at a visit of its layer
};

}  // namespace

std::unique_ptr<ExpertPredictor> make_frequency(const PredictorInputs& inputs) {
  return std::make_unique<Frequency>(inputs.shape);
}

}  // namespace edgert
