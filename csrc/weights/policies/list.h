// The policies; a new one is a file and a line here.
#pragma once
#include "weights/policies/policy.h"

namespace edgert {

std::unique_ptr<EvictionPolicy> make_lru(const PolicyInputs& inputs);
std::unique_ptr<EvictionPolicy> make_lfu(const PolicyInputs& inputs);
std::unique_ptr<EvictionPolicy> make_lfru(const PolicyInputs& inputs);
std::unique_ptr<EvictionPolicy> make_score(const PolicyInputs& inputs);
std::unique_ptr<EvictionPolicy> make_hotset(const PolicyInputs& inputs);
std::unique_ptr<EvictionPolicy> make_belady(const PolicyInputs& inputs);

struct NamedPolicy {
  const char* name;
  std::unique_ptr<EvictionPolicy> (*make)(const PolicyInputs&);
};
inline constexpr NamedPolicy kPolicies[] = {
    {"lru", make_lru},     {"lfu", make_lfu},       {"lfru", make_lfru},
    {"score", make_score}, {"hotset", make_hotset}, {"belady", make_belady},
};

}  // namespace edgert
