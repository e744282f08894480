#include "base/cpu.h"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace edgert {
namespace {

#if defined(__x86_64__)

struct Registers {
  std::uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(std::uint32_t leaf, std::uint32_t subleaf) {
  Registers r;
  if (!__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx)) return {};
  return r;
}

bool bit(std::uint32_t word, int index) { return (word >> index) & 1u; }

// The register states that the operating system saves (XCR0).
std::uint64_t saved_states() {
  std::uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<std::uint64_t>(high) << 32) | low;
}

bool amx_permitted() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

CpuFeatures detect() {
  CpuFeatures f;
  const Registers one = cpuid(1, 0), seven = cpuid(7, 0), seven_one = cpuid(7, 1);
  if (!bit(one.ecx, 27)) return f;  // OSXSAVE
  const std::uint64_t states = saved_states();
  const bool ymm = (states & 0x6) == 0x6;
  const bool zmm = (states & 0xe6) == 0xe6;
  const bool tiles = (states & 0x60000) == 0x60000;
  f.avx2 = ymm && bit(one.ecx, 12) && bit(one.ecx, 28) && bit(one.ecx, 29) && bit(seven.ebx, 5) && bit(seven.ebx, 8);
  f.avxvnni = f.avx2 && seven.eax >= 1 && bit(seven_one.eax, 4);
  f.avx512 = f.avx2 && zmm && bit(seven.ebx, 16) && bit(seven.ebx, 17) && bit(seven.ebx, 30) && bit(seven.ebx, 31);
  f.avx512vnni = f.avx512 && bit(seven.ecx, 11);
  const bool avx512vbmi = f.avx512vnni && bit(seven.ecx, 1);
  f.amx = avx512vbmi && tiles && bit(seven.edx, 22) && bit(seven.edx, 24) && bit(seven.edx, 25) && amx_permitted();
#if EDGERT_EMULATE
  f.avxvnni = f.avx512vnni;
  f.amx = avx512vbmi;
#endif
  return f;
}

#elif defined(__aarch64__) && defined(__linux__)

CpuFeatures detect() {
  constexpr unsigned long kAsimdDotProduct = 1ul << 20;     // HWCAP_ASIMDDP
  constexpr unsigned long kInt8MatrixMultiply = 1ul << 13;  // HWCAP2_I8MM
  CpuFeatures f;
  f.neon = true;
  f.neon_dotprod = (getauxval(AT_HWCAP) & kAsimdDotProduct) != 0;
  f.neon_i8mm = f.neon_dotprod && (getauxval(AT_HWCAP2) & kInt8MatrixMultiply) != 0;
  return f;
}

#elif defined(__aarch64__) && defined(__APPLE__)

bool has(const char* name) {
  int value = 0;
  std::size_t num_bytes = sizeof(value);
  return sysctlbyname(name, &value, &num_bytes, nullptr, 0) == 0 && value != 0;
}

CpuFeatures detect() {
  CpuFeatures f;
  f.neon = true;
  f.neon_dotprod = has("hw.optional.arm.FEAT_DotProd");
  f.neon_i8mm = f.neon_dotprod && has("hw.optional.arm.FEAT_I8MM");
  return f;
}

#else

CpuFeatures detect() { return {}; }

#endif

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

std::string cpu_name() {
#if defined(__x86_64__)
  char name[49] = {};
  if (cpuid(0x80000000u, 0).eax < 0x80000004u) return "x86-64";
  for (std::uint32_t i = 0; i < 3; ++i) {
    const Registers r = cpuid(0x80000002u + i, 0);
    std::memcpy(name + 16 * i, &r, 16);
  }
  std::string text(name);
  text.erase(0, text.find_first_not_of(' '));
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
#elif defined(__APPLE__)
  char name[128] = {};
  std::size_t num_bytes = sizeof(name) - 1;
  if (sysctlbyname("machdep.cpu.brand_string", name, &num_bytes, nullptr, 0) == 0) return name;
  return "arm64";
#else
  return "aarch64";
#endif
}

}  // namespace edgert
