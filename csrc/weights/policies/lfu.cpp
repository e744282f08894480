// Least frequently used first. Uses of long ago count less, so that a change of topic is followed.
#include "weights/policies/list.h"

namespace edgert {
namespace {

constexpr double kKept = 1.0 - 1.0 / 256;  // of a count at each visit of the layer

class Lfu final : public EvictionPolicy {
 public:
  void routed(std::int32_t, std::span<const std::int32_t> experts, std::span<const float>,
              std::span<double> priorities) override {
    for (double& priority : priorities) priority *= kKept;
    for (const std::int32_t expert : experts) priorities[static_cast<std::size_t>(expert)] += 1;
  }
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_lfu(const PolicyInputs&) { return std::make_unique<Lfu>(); }

}  // namespace edgert
