#include "weights/policies/policy.h"

#include <stdexcept>

#include "weights/policies/list.h"

namespace edgert {

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const NamedPolicy& policy : kPolicies) names.emplace_back(policy.name);
  return names;
}

std::unique_ptr<EvictionPolicy> make_policy(const std::string& name, const PolicyInputs& inputs) {
  std::string expected;
  for (const NamedPolicy& policy : kPolicies) {
    if (name == policy.name) return policy.make(inputs);
    expected += (expected.empty() ? "" : ", ") + std::string(policy.name);
  }
  throw std::invalid_argument("policy: found '" + name + "', expected one of " + expected);
}

}  // namespace edgert
