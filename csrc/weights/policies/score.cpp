// Lowest running average of the router's weights first (HybriMoE's minus-recent-score): an expert that the router has
// lately liked stays, also where it was not used at the very last token.
#include "weights/policies/list.h"

namespace edgert {
namespace {

// How much a new weight counts.
constexpr double kShare = 1.0 / 64;

class Score final : public EvictionPolicy {
 public:
  void routed(std::int32_t, std::span<const std::int32_t> experts, std::span<const float> weights,
              std::span<double> priorities) override {
    for (double& priority : priorities) priority *= 1 - kShare;
    for (std::size_t i = 0; i < experts.size(); ++i)
      priorities[static_cast<std::size_t>(experts[i])] += kShare * static_cast<double>(weights[i]);
  }
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_score(const PolicyInputs&) { return std::make_unique<Score>(); }

}  // namespace edgert
