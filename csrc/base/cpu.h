// What this processor and operating system can run.
#pragma once
#include <string>

namespace edgert {

struct CpuFeatures {
  // x86-64: each is true only if the operating system saves the registers that it needs (XCR0).
  bool avx2 = false;  // with fma, f16c and bmi2
  bool avxvnni = false;
  bool avx512 = false;  // f, bw, vl, dq
  bool avx512vnni = false;
  bool amx = false;  // int8 and bf16 tiles, permission granted by the kernel
  // aarch64
  bool neon = false;
  bool neon_dotprod = false;
  bool neon_i8mm = false;
};

const CpuFeatures& cpu_features();
std::string cpu_name();

}  // namespace edgert
