// What each layer chose when the same token came before, counted as the text goes on (after ExpertFlow's routing
// paths): the first layers route by the token more than by its context, and the token is known before the first of them
// runs.
#include <algorithm>
#include <utility>
#include <vector>

#include "weights/predictors/list.h"

namespace edgert {
namespace {

// As many tokens are remembered as fit; one takes the place of another with the same remainder.
constexpr std::int64_t kTableBytes = 8 << 20;
constexpr std::int64_t kLeastTokens = 256, kMostTokens = 8192;
constexpr float kPrior = 2.0f;             // imagined visits that choose as the layer usually does
constexpr float kKept = 1.0f - 1.0f / 32;  // of a count at each new visit of the token

class Token final : public ExpertPredictor {
 public:
  explicit Token(const PredictorInputs& inputs)
      : shape_(inputs.shape),
        candidates_(std::min(inputs.shape.num_experts, 3 * inputs.top_k)),
        places_(static_cast<std::int32_t>(
            std::clamp(kTableBytes / (shape_.num_layers * (candidates_ * std::int64_t{sizeof(Count)} + 4)),
                       kLeastTokens, kMostTokens))),
        usual_(make_frequency(inputs)),
        owner_(static_cast<std::size_t>(places_), -1),
        visits_(owner_.size() * static_cast<std::size_t>(inputs.shape.num_layers)),
        counts_(visits_.size() * static_cast<std::size_t>(candidates_)) {}
  void begin_step(std::span<const std::int32_t> tokens) override {
    token_ = tokens.size() == 1 && tokens[0] >= 0 ? tokens[0] : -1;
    if (token_ < 0) return;
    std::int32_t& owner = owner_[static_cast<std::size_t>(token_ % places_)];
    if (std::exchange(owner, token_) == token_) return;
    std::fill_n(&visits_[visit(0)], shape_.num_layers, 0.0f);
    std::fill_n(counts(0), shape_.num_layers * candidates_, Count{});
  }
  void routed(std::int32_t layer, std::span<const std::int32_t> experts, std::span<const float> weights) override {
    usual_->routed(layer, experts, weights);
    if (token_ < 0) return;
    float& visits = visits_[visit(layer)];
    visits = visits * kKept + 1;
    Count* first = counts(layer);
    for (std::int32_t i = 0; i < candidates_; ++i) first[i].times *= kKept;
    for (const std::int32_t expert : experts) {
      Count* place = std::find_if(first, first + candidates_, [&](const Count& c) { return c.expert == expert; });
      if (place == first + candidates_) {
        place = std::min_element(first, first + candidates_,
                                 [](const Count& a, const Count& b) { return a.times < b.times; });
        *place = {expert, 0.0f};
      }
      place->times += 1;
    }
  }
  void predict(std::int32_t layer, const PredictionHints& hints, std::span<float> likely) override {
    usual_->predict(layer, hints, likely);
    if (token_ < 0) return;
    const float visits = visits_[visit(layer)];
    for (float& value : likely) value *= kPrior / (visits + kPrior);
    const Count* first = counts(layer);
    for (std::int32_t i = 0; i < candidates_; ++i)
      if (first[i].expert >= 0) likely[static_cast<std::size_t>(first[i].expert)] += first[i].times / (visits + kPrior);
    for (float& value : likely) value = std::min(value, 1.0f);
  }

 private:
  struct Count {
    std::int32_t expert = -1;
    float times = 0;
  };
  std::size_t visit(std::int32_t layer) const {
    return static_cast<std::size_t>(token_ % places_ * shape_.num_layers + layer);
  }
  Count* counts(std::int32_t layer) { return &counts_[visit(layer) * static_cast<std::size_t>(candidates_)]; }

  const ExpertShape shape_;
  const std::int32_t candidates_;  // experts that are remembered of a token and layer
  const std::int32_t places_;      // tokens that are remembered
  const std::unique_ptr<ExpertPredictor> usual_;
  std::int32_t token_ = -1;          // of this step; -1: none, or several
  std::vector<std::int32_t> owner_;  // the token of each place
  std::vector<float> visits_;        // [place][layer]
  std::vector<Count> counts_;        // [place][layer][candidates]
};

}  // namespace

std::unique_ptr<ExpertPredictor> make_token(const PredictorInputs& inputs) { return std::make_unique<Token>(inputs); }

}  // namespace edgert
