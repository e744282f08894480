// No prediction: experts are read when the router asks.
#include <algorithm>

#include "weights/predictors/list.h"

namespace edgert {
namespace {

class None final : public ExpertPredictor {
 public:
  void routed(std::int32_t, std::span<const std::int32_t>, std::span<const float>) override {}
  void predict(std::int32_t, const PredictionHints&, std::span<float> likely) override {
    std::fill(likely.begin(), likely.end(), 0.0f);
  }
};

}  // namespace

std::unique_ptr<ExpertPredictor> make_none(const PredictorInputs&) { return std::make_unique<None>(); }

}  // namespace edgert
