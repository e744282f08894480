// What has followed the experts of the layer before, counted as the text goes on (ExFlow, EdgeMoE). The first layer
// follows the last one of the token before.
#include <algorithm>
#include <vector>

#include "weights/predictors/list.h"

namespace edgert {
namespace {

// So many imagined visits, in which each expert comes as often as it does in general, temper small counts.
constexpr float kPrior = 8.0f;

class Affinity final : public ExpertPredictor {
 public:
  explicit Affinity(const PredictorInputs& inputs)
      : shape_(inputs.shape),
        uses_(static_cast<std::size_t>(shape_.num_slots())),
        visits_(static_cast<std::size_t>(shape_.num_layers)),
        follows_(uses_.size() * static_cast<std::size_t>(shape_.num_experts)) {
    last_.reserve(static_cast<std::size_t>(shape_.num_experts));
  }
  void routed(std::int32_t layer, std::span<const std::int32_t> experts, std::span<const float>) override {
    visits_[static_cast<std::size_t>(layer)] += 1;
    for (const std::int32_t expert : experts) {
      uses_[slot(layer, expert)] += 1;
      if (!follows_layer(layer)) continue;
      for (const std::int32_t before : last_) follows(before_layer(layer), before)[expert] += 1;
    }
    last_layer_ = layer;
    last_.assign(experts.begin(), experts.end());
  }
  void predict(std::int32_t layer, const PredictionHints&, std::span<float> likely) override {
    const float visits = std::max(1.0f, visits_[static_cast<std::size_t>(layer)]);
    for (std::size_t e = 0; e < likely.size(); ++e) likely[e] = uses_[slot(layer, 0) + e] / visits;
    if (!follows_layer(layer)) return;
    for (std::size_t e = 0; e < likely.size(); ++e) {
      const float usual = likely[e];
      float unlikely = 1.0f;
      for (const std::int32_t before : last_)
        unlikely *=
            1 - (follows(last_layer_, before)[e] + kPrior * usual) / (uses_[slot(last_layer_, before)] + kPrior);
      likely[e] = std::clamp(1 - unlikely, 0.0f, 1.0f);
    }
  }

 private:
  std::size_t slot(std::int32_t layer, std::int32_t expert) const {
    return static_cast<std::size_t>(shape_.slot(layer, expert));
  }
  std::int32_t before_layer(std::int32_t layer) const { return (layer + shape_.num_layers - 1) % shape_.num_layers; }
  bool follows_layer(std::int32_t layer) const { return !last_.empty() && last_layer_ == before_layer(layer); }
  // How often each expert of the next layer came after this one.
  float* follows(std::int32_t layer, std::int32_t expert) {
    return &follows_[slot(layer, expert) * static_cast<std::size_t>(shape_.num_experts)];
  }

  const ExpertShape shape_;
  std::vector<float> uses_, visits_;  // of each expert, of each layer
  std::vector<float> follows_;        // [layer][expert][expert of the next layer]
  std::vector<std::int32_t> last_;    // what was routed last
  std::int32_t last_layer_ = -1;
};

}  // namespace

std::unique_ptr<ExpertPredictor> make_affinity(const PredictorInputs& inputs) {
  return std::make_unique<Affinity>(inputs);
}

}  // namespace edgert
