// A table fitted on a recorded routing (after ExpertFlow): how much likelier than usual an expert is, given each expert
// of the layer before and each expert that the layer itself chose at the token before, taken as independent.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "weights/predictors/list.h"

namespace edgert {
namespace {

constexpr float kPrior = 4.0f;  // imagined visits that temper small counts

class Table final : public ExpertPredictor {
 public:
  explicit Table(const PredictorInputs& inputs)
      : shape_(inputs.shape),
        top_k_(inputs.top_k),
        rate_(static_cast<std::size_t>(shape_.num_slots())),
        after_layer_(rate_.size() * static_cast<std::size_t>(shape_.num_experts)),
        after_token_(after_layer_.size()),
        chosen_(static_cast<std::size_t>(shape_.num_layers)) {
    if (inputs.profile.num_tokens == 0) throw std::invalid_argument("table: found no recorded routing to fit");
    for (std::vector<std::int32_t>& chosen : chosen_) chosen.reserve(static_cast<std::size_t>(shape_.num_experts));
    count(inputs.profile);
    to_log_lift(inputs.profile.num_tokens);
  }
  void routed(std::int32_t layer, std::span<const std::int32_t> experts, std::span<const float>) override {
    chosen_[static_cast<std::size_t>(layer)].assign(experts.begin(), experts.end());
  }
  void predict(std::int32_t layer, const PredictionHints&, std::span<float> likely) override {
    for (std::size_t e = 0; e < likely.size(); ++e) likely[e] = std::log(rate_[slot(layer, 0) + e]);
    for (const std::int32_t expert : chosen_[static_cast<std::size_t>(before(layer))])
      add(row(after_layer_, before(layer), expert), likely);
    for (const std::int32_t expert : chosen_[static_cast<std::size_t>(layer)])
      add(row(after_token_, layer, expert), likely);
    const float top = *std::max_element(likely.begin(), likely.end());
    float sum = 0.0f;
    for (float& value : likely) sum += value = std::exp(value - top);
    for (float& value : likely) value = 1.0f - std::pow(1.0f - value / sum, static_cast<float>(top_k_));
  }

 private:
  std::size_t slot(std::int32_t layer, std::int32_t expert) const {
    return static_cast<std::size_t>(shape_.slot(layer, expert));
  }
  std::int32_t before(std::int32_t layer) const { return (layer + shape_.num_layers - 1) % shape_.num_layers; }
  float* row(std::vector<float>& table, std::int32_t layer, std::int32_t expert) const {
    return &table[slot(layer, expert) * static_cast<std::size_t>(shape_.num_experts)];
  }
  static void add(const float* lift, std::span<float> likely) {
    for (std::size_t e = 0; e < likely.size(); ++e) likely[e] += lift[e];
  }
  void count(const RoutingView& profile) {
    for (std::int32_t token = 0; token < profile.num_tokens; ++token)
      for (std::int32_t layer = 0; layer < shape_.num_layers; ++layer)
        for (const std::int16_t expert : profile.row(token, layer)) {
          rate_[slot(layer, expert)] += 1;
          if (token == 0) continue;
          for (const std::int16_t other : profile.row(token - 1, layer)) row(after_token_, layer, other)[expert] += 1;
          const std::int32_t token_before = layer == 0 ? token - 1 : token;
          for (const std::int16_t other : profile.row(token_before, before(layer)))
            row(after_layer_, before(layer), other)[expert] += 1;
        }
  }
  // Counts become log(how likely after this expert / how likely in general).
  void to_log_lift(std::int32_t num_tokens) {
    const std::vector<float> uses = rate_;
    for (float& rate : rate_) rate = (rate + 0.5f) / (static_cast<float>(num_tokens) + 1.0f);
    for (std::int32_t layer = 0; layer < shape_.num_layers; ++layer)
      for (std::int32_t expert = 0; expert < shape_.num_experts; ++expert) {
        const float visits = uses[slot(layer, expert)] + kPrior;
        float *next = row(after_layer_, layer, expert), *same = row(after_token_, layer, expert);
        for (std::int32_t e = 0; e < shape_.num_experts; ++e) {
          const float next_rate = rate_[slot((layer + 1) % shape_.num_layers, e)], rate = rate_[slot(layer, e)];
          next[e] = std::log((next[e] + kPrior * next_rate) / visits / next_rate);
          same[e] = std::log((same[e] + kPrior * rate) / visits / rate);
        }
      }
  }

  const ExpertShape shape_;
  const std::int32_t top_k_;
  std::vector<float> rate_;                        // of each expert: chosen at a visit of its layer
  std::vector<float> after_layer_, after_token_;   // [layer][expert given][expert]
  std::vector<std::vector<std::int32_t>> chosen_;  // by each layer, last
};

}  // namespace

std::unique_ptr<ExpertPredictor> make_table(const PredictorInputs& inputs) { return std::make_unique<Table>(inputs); }

}  // namespace edgert
