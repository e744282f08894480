// Least recently used first.
#include "weights/policies/list.h"

namespace edgert {
namespace {

class Lru final : public EvictionPolicy {
 public:
  void routed(std::int32_t, std::span<const std::int32_t> experts, std::span<const float>,
              std::span<double> priorities) override {
    for (const std::int32_t expert : experts) priorities[static_cast<std::size_t>(expert)] = ++clock_;
  }
  void loaded(std::int32_t, std::int32_t expert, std::span<double> priorities) override {
    priorities[static_cast<std::size_t>(expert)] = ++clock_;
  }

 private:
  double clock_ = 0;
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_lru(const PolicyInputs&) { return std::make_unique<Lru>(); }

}  // namespace edgert
