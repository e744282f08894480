// Least frequently used first, counted since the start.
#include "weights/policies/list.h"

namespace edgert {
namespace {

class Lfu final : public EvictionPolicy {
 public:
  void routed(std::int32_t, std::span<const std::int32_t> experts, std::span<const float>,
              std::span<double> priorities) override {
    for (const std::int32_t expert : experts) priorities[static_cast<std::size_t>(expert)] += 1;
  }
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_lfu(const PolicyInputs&) { return std::make_unique<Lfu>(); }

}  // namespace edgert
