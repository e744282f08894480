// Frequency over age: uses so far divided by the visits of the layer since the last use. An expert that was popular
// long ago gives way to one that was used a little just now.
#include <vector>

#include "weights/policies/list.h"

namespace edgert {
namespace {

class Lfru final : public EvictionPolicy {
 public:
  explicit Lfru(const ExpertShape& shape)
      : shape_(shape),
        visits_(static_cast<std::size_t>(shape.num_layers)),
        uses_(static_cast<std::size_t>(shape.num_slots())),
        last_(uses_.size()) {}
  void routed(std::int32_t layer, std::span<const std::int32_t> experts, std::span<const float>,
              std::span<double> priorities) override {
    const std::int64_t now = ++visits_[static_cast<std::size_t>(layer)];
    const auto first = static_cast<std::size_t>(shape_.slot(layer, 0));
    for (const std::int32_t expert : experts) {
      uses_[first + static_cast<std::size_t>(expert)] += 1;
      last_[first + static_cast<std::size_t>(expert)] = now;
    }
    for (std::size_t e = 0; e < priorities.size(); ++e)
      priorities[e] = static_cast<double>(uses_[first + e]) / static_cast<double>(now - last_[first + e] + 1);
  }

 private:
  const ExpertShape shape_;
  std::vector<std::int64_t> visits_;       // of each layer
  std::vector<std::int64_t> uses_, last_;  // of each expert
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_lfru(const PolicyInputs& inputs) { return std::make_unique<Lfru>(inputs.shape); }

}  // namespace edgert
