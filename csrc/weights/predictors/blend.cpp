// All that the other predictors know, weighed by how right it has been: for each layer a logistic regression over their
// answers, fitted as the text goes on. What tells nothing (a gate of random weights) loses its weight by itself.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "weights/predictors/list.h"

namespace edgert {
namespace {

constexpr float kLeast = 1.0f / 1024;  // no answer is taken to be surer than this
constexpr float kRate = 0.5f;          // of learning, AdaGrad
constexpr std::size_t kSources = 4;    // usual, token, affinity, gate
using Features = std::array<float, kSources + 1>;

class Blend final : public ExpertPredictor {
 public:
  explicit Blend(const PredictorInputs& inputs)
      : shape_(inputs.shape),
        sources_{make_frequency(inputs), make_token(inputs), make_affinity(inputs), make_cross_layer_gate(inputs)},
        answer_(static_cast<std::size_t>(shape_.num_experts)),
        features_(static_cast<std::size_t>(shape_.num_slots())),
        models_(2 * static_cast<std::size_t>(shape_.num_layers)),
        open_(static_cast<std::size_t>(shape_.num_layers)) {}
  void begin_step(std::span<const std::int32_t> tokens) override {
    for (const auto& source : sources_) source->begin_step(tokens);
  }
  void routed(std::int32_t layer, std::span<const std::int32_t> experts, std::span<const float> weights) override {
    for (const auto& source : sources_) source->routed(layer, experts, weights);
    if (Model* const model = std::exchange(open_[static_cast<std::size_t>(layer)], nullptr))
      learn(*model, layer, experts);
  }
  void predict(std::int32_t layer, const PredictionHints& hints, std::span<float> likely) override {
    Features* const features = row(layer);
    for (std::size_t s = 0; s < kSources; ++s) {
      sources_[s]->predict(layer, hints, answer_);
      for (std::size_t e = 0; e < answer_.size(); ++e) {
        const float p = std::clamp(answer_[e], kLeast, 1 - kLeast);
        const float odds = std::log(p / (1 - p));
        // Token and affinity say how they differ from what is usual.
        features[e][s] = s == 1 || s == 2 ? odds - features[e][0] : odds;
      }
    }
    Model& model = models_[2 * static_cast<std::size_t>(layer) + (hints.gate_logits.empty() ? 0 : 1)];
    open_[static_cast<std::size_t>(layer)] = &model;
    for (std::size_t e = 0; e < likely.size(); ++e) {
      features[e][kSources] = 1;
      likely[e] = estimate(model, features[e]);
    }
  }

 private:
  struct Model {
    Features weights = {0.5f, 0.5f, 0.3f, 0.5f, 0.0f};
    Features squares = {1, 1, 1, 1, 1};  // sums of squared gradients
  };
  static float estimate(const Model& model, const Features& features) {
    float sum = 0;
    for (std::size_t i = 0; i < features.size(); ++i) sum += model.weights[i] * features[i];
    return 1 / (1 + std::exp(-sum));
  }
  void learn(Model& model, std::int32_t layer, std::span<const std::int32_t> experts) {
    Features gradient{};
    for (std::int32_t e = 0; e < shape_.num_experts; ++e) {
      const Features& features = row(layer)[e];
      const float error =
          (std::binary_search(experts.begin(), experts.end(), e) ? 1.0f : 0.0f) - estimate(model, features);
      for (std::size_t i = 0; i < features.size(); ++i) gradient[i] += error * features[i];
    }
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      model.squares[i] += gradient[i] * gradient[i];
      model.weights[i] += kRate * gradient[i] / std::sqrt(model.squares[i]);
    }
  }
  Features* row(std::int32_t layer) { return &features_[static_cast<std::size_t>(shape_.slot(layer, 0))]; }

  const ExpertShape shape_;
  const std::array<std::unique_ptr<ExpertPredictor>, kSources> sources_;
  std::vector<float> answer_;
  std::vector<Features> features_;  // [layer][expert], of the open prediction
  std::vector<Model> models_;       // [layer][without or with a gate]
  std::vector<Model*> open_;        // of each layer: what its open prediction was made with
};

}  // namespace

std::unique_ptr<ExpertPredictor> make_blend(const PredictorInputs& inputs) { return std::make_unique<Blend>(inputs); }

}  // namespace edgert
