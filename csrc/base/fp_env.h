// The floating-point mode that the numeric contract needs.
#pragma once
#include <cstdint>

namespace edgert {

// While it lives, this thread rounds to nearest and keeps subnormals; the former mode comes back afterwards.
// Other libraries change the mode of a process when they are imported, so every step sets it anew.
class FloatEnvironment {
 public:
  FloatEnvironment();
  ~FloatEnvironment();
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
  std::uint64_t saved_;
};

}  // namespace edgert
