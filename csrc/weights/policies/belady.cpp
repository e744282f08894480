// The oracle: what is needed last goes first. Only where the future is known, so in the simulator.
#include <stdexcept>
#include <vector>

#include "weights/policies/list.h"

namespace edgert {
namespace {

class Belady final : public EvictionPolicy {
 public:
  explicit Belady(const PolicyInputs& inputs)
      : shape_(inputs.shape),
        visits_(static_cast<std::size_t>(shape_.num_layers)),
        uses_(static_cast<std::size_t>(shape_.num_slots())),
        next_(uses_.size()) {
    const RoutingView& future = inputs.future;
    if (future.num_tokens == 0) throw std::invalid_argument("belady: found no future; it runs in the simulator only");
    for (std::int32_t token = 0; token < future.num_tokens; ++token)
      for (std::int32_t layer = 0; layer < future.num_layers; ++layer)
        for (const std::int16_t expert : future.row(token, layer)) uses_[index(layer, expert)].push_back(token);
  }
  void start(std::span<double> priorities) override {
    for (std::int32_t layer = 0; layer < shape_.num_layers; ++layer)
      for (std::int32_t expert = 0; expert < shape_.num_experts; ++expert)
        priorities[index(layer, expert)] = priority(layer, expert);
  }
  void routed(std::int32_t layer, std::span<const std::int32_t> experts, std::span<const float>,
              std::span<double> priorities) override {
    const std::int32_t token = visits_[static_cast<std::size_t>(layer)]++;
    for (const std::int32_t expert : experts) {
      const std::vector<std::int32_t>& uses = uses_[index(layer, expert)];
      std::size_t& next = next_[index(layer, expert)];
      while (next < uses.size() && uses[next] <= token) ++next;
      priorities[static_cast<std::size_t>(expert)] = priority(layer, expert);
    }
  }

 private:
  std::size_t index(std::int32_t layer, std::int32_t expert) const {
    return static_cast<std::size_t>(shape_.slot(layer, expert));
  }
  // Minus the place of the next use in the order of all routings.
  double priority(std::int32_t layer, std::int32_t expert) const {
    const std::vector<std::int32_t>& uses = uses_[index(layer, expert)];
    const std::size_t next = next_[index(layer, expert)];
    return next < uses.size() ? -(static_cast<double>(uses[next]) * shape_.num_layers + layer) : -1e18;
  }

  const ExpertShape shape_;
  std::vector<std::int32_t> visits_;             // of each layer
  std::vector<std::vector<std::int32_t>> uses_;  // of each expert: the tokens that want it, ascending
  std::vector<std::size_t> next_;                // of each expert: its first use still to come
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_belady(const PolicyInputs& inputs) { return std::make_unique<Belady>(inputs); }

}  // namespace edgert
