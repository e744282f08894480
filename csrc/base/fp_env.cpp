#include "base/fp_env.h"

namespace edgert {

#if defined(__x86_64__)

namespace {
constexpr std::uint32_t kDefaultControl = 0x1f80;  // all exceptions masked, to nearest, no flush-to-zero

std::uint32_t read_control() {
  std::uint32_t control;
  __asm__ volatile("stmxcsr %0" : "=m"(control));
  return control;
}

void write_control(std::uint32_t control) { __asm__ volatile("ldmxcsr %0" : : "m"(control)); }
}  // namespace

FloatEnvironment::FloatEnvironment() : saved_(read_control()) { write_control(kDefaultControl); }
FloatEnvironment::~FloatEnvironment() { write_control(static_cast<std::uint32_t>(saved_)); }

#elif defined(__aarch64__)

namespace {
std::uint64_t read_control() {
  std::uint64_t control;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  return control;
}

void write_control(std::uint64_t control) { __asm__ volatile("msr fpcr, %0" : : "r"(control)); }
}  // namespace

FloatEnvironment::FloatEnvironment() : saved_(read_control()) { write_control(0); }
FloatEnvironment::~FloatEnvironment() { write_control(saved_); }

#else

FloatEnvironment::FloatEnvironment() : saved_(0) {}
FloatEnvironment::~FloatEnvironment() = default;

#endif

}  // namespace edgert
