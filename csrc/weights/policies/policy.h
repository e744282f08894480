// Which expert goes first when room is needed: one small file for each policy, found by name.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weights/routing.h"

namespace edgert {

// A policy keeps a priority for every expert, resident or not; the lowest goes first, the lower (layer, expert) where
// two are equal. No allocation after construction.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  // The router of a layer chose these; `priorities` are those of the layer's experts and may be changed.
  virtual void routed(std::int32_t layer, std::span<const std::int32_t> experts, std::span<const float> weights,
                      std::span<double> priorities) = 0;
  // A read of an expert has been ordered.
  virtual void loaded(std::int32_t /*layer*/, std::int32_t /*expert*/, std::span<double> /*priorities*/) {}
  // Before the first step. Zeros where nothing is known.
  virtual void start(std::span<double> /*priorities*/) {}
};

struct PolicyInputs {
  ExpertShape shape = {};
  RoutingView profile = {};  // hotset: a recorded routing of other text
  RoutingView future = {};   // belady: the routing that is about to be asked for
};

// Throws std::invalid_argument for an unknown name, or where a policy lacks an input.
std::unique_ptr<EvictionPolicy> make_policy(const std::string& name, const PolicyInputs& inputs);
std::vector<std::string> policy_names();

}  // namespace edgert
