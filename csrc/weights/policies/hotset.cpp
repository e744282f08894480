// A fixed order: how often a recorded routing of other text used each expert.
#include <algorithm>
#include <stdexcept>
#include <vector>

#include "weights/policies/list.h"

namespace edgert {
namespace {

class Hotset final : public EvictionPolicy {
 public:
  explicit Hotset(const PolicyInputs& inputs) : uses_(static_cast<std::size_t>(inputs.shape.num_slots())) {
    const RoutingView& profile = inputs.profile;
    if (profile.num_tokens == 0) throw std::invalid_argument("hotset: found no recorded routing to count");
    for (std::int32_t token = 0; token < profile.num_tokens; ++token)
      for (std::int32_t layer = 0; layer < profile.num_layers; ++layer)
        for (const std::int16_t expert : profile.row(token, layer))
          uses_[static_cast<std::size_t>(inputs.shape.slot(layer, expert))] += 1;
  }
  void routed(std::int32_t, std::span<const std::int32_t>, std::span<const float>, std::span<double>) override {}
  void start(std::span<double> priorities) override { std::copy(uses_.begin(), uses_.end(), priorities.begin()); }

 private:
  std::vector<double> uses_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_hotset(const PolicyInputs& inputs) { return std::make_unique<Hotset>(inputs); }

}  // namespace edgert
