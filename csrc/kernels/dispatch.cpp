// Which levels were built, which of them this machine runs, and one complete table for each.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/cpu.h"
#include "kernels/isa/tables.h"

#ifndef EDGERT_HAVE_AVX2
#define EDGERT_HAVE_AVX2 0
#endif
#ifndef EDGERT_HAVE_AVXVNNI
#define EDGERT_HAVE_AVXVNNI 0
#endif
#ifndef EDGERT_HAVE_AVX512
#define EDGERT_HAVE_AVX512 0
#endif
#ifndef EDGERT_HAVE_AVX512VNNI
#define EDGERT_HAVE_AVX512VNNI 0
#endif
#ifndef EDGERT_HAVE_AMX
#define EDGERT_HAVE_AMX 0
#endif
#ifndef EDGERT_HAVE_NEON
#define EDGERT_HAVE_NEON 0
#endif
#ifndef EDGERT_HAVE_NEON_DOTPROD
#define EDGERT_HAVE_NEON_DOTPROD 0
#endif
#ifndef EDGERT_HAVE_NEON_I8MM
#define EDGERT_HAVE_NEON_I8MM 0
#endif

namespace edgert {
namespace {

struct Level {
  const char* name;
  bool is_built;
  bool CpuFeatures::* feature;  // null: every machine has it
  const KernelTable* table;     // null: not built
  int fallback;                 // index of the level that fills in what is missing
};

// Address of a table that exists only if its file was built.
#define EDGERT_TABLE(have, isa) (EDGERT_TABLE_##have(isa))
#define EDGERT_TABLE_1(isa) &isa::kTable
#define EDGERT_TABLE_0(isa) nullptr
#define EDGERT_EXPANDED_TABLE(have, isa) EDGERT_TABLE(have, isa)

constexpr Level kLevels[] = {
    {"scalar", true, nullptr, &scalar::kTable, 0},
#if defined(__x86_64__)
    {"avx2", EDGERT_HAVE_AVX2 != 0, &CpuFeatures::avx2, EDGERT_EXPANDED_TABLE(EDGERT_HAVE_AVX2, avx2), 0},
    {"avxvnni", EDGERT_HAVE_AVXVNNI != 0, &CpuFeatures::avxvnni, EDGERT_EXPANDED_TABLE(EDGERT_HAVE_AVXVNNI, avxvnni),
     1},
    {"avx512", EDGERT_HAVE_AVX512 != 0, &CpuFeatures::avx512, EDGERT_EXPANDED_TABLE(EDGERT_HAVE_AVX512, avx512), 1},
    {"avx512vnni", EDGERT_HAVE_AVX512VNNI != 0, &CpuFeatures::avx512vnni,
     EDGERT_EXPANDED_TABLE(EDGERT_HAVE_AVX512VNNI, avx512vnni), 3},
    {"amx", EDGERT_HAVE_AMX != 0, &CpuFeatures::amx, EDGERT_EXPANDED_TABLE(EDGERT_HAVE_AMX, amx), 4},
#elif defined(__aarch64__)
    {"neon", EDGERT_HAVE_NEON != 0, &CpuFeatures::neon, EDGERT_EXPANDED_TABLE(EDGERT_HAVE_NEON, neon), 0},
    {"neon_dotprod", EDGERT_HAVE_NEON_DOTPROD != 0, &CpuFeatures::neon_dotprod,
     EDGERT_EXPANDED_TABLE(EDGERT_HAVE_NEON_DOTPROD, neon_dotprod), 1},
    {"neon_i8mm", EDGERT_HAVE_NEON_I8MM != 0, &CpuFeatures::neon_i8mm,
     EDGERT_EXPANDED_TABLE(EDGERT_HAVE_NEON_I8MM, neon_i8mm), 2},
#endif
};
constexpr int kNumLevels = static_cast<int>(sizeof(kLevels) / sizeof(kLevels[0]));

template <class Entry>
void fill(Entry& entry, Entry lower) {
  if (!entry) entry = lower;
}

// A family that the table lacks comes from the level below, after its own: those are the better guess.
void append_missing_families(LinearKernels& kernels, const LinearKernels& lower) {
  int num_own = 0;
  while (num_own < kMaxLinearKernels && kernels[num_own].name) ++num_own;
  const auto is_own = [&](const LinearKernel& kernel) {
    return std::any_of(kernels.begin(), kernels.begin() + num_own,
                       [&](const LinearKernel& own) { return std::strcmp(own.name, kernel.name) == 0; });
  };
  int end = num_own;
  for (const LinearKernel& kernel : lower) {
    if (kernel.name && !is_own(kernel) && end < kMaxLinearKernels) kernels[end++] = kernel;
  }
}

void fill_missing(KernelTable& t, const KernelTable& lower) {
  for (int i = 0; i < kNumFormats; ++i) {
    append_missing_families(t.linear[i], lower.linear[i]);
    fill(t.neurons[i], lower.neurons[i]);
    fill(t.dequantize_row[i], lower.dequantize_row[i]);
  }
  fill(t.quantize, lower.quantize);
  fill(t.build_tables, lower.build_tables);
  fill(t.rms_norm, lower.rms_norm);
  fill(t.rope, lower.rope);
  fill(t.add, lower.add);
  fill(t.silu_mul, lower.silu_mul);
  fill(t.gelu_mul, lower.gelu_mul);
  fill(t.relu2, lower.relu2);
  fill(t.scale, lower.scale);
  fill(t.soft_cap, lower.soft_cap);
  fill(t.add_scaled, lower.add_scaled);
  fill(t.softmax, lower.softmax);
  fill(t.max, lower.max);
  fill(t.exp_shifted, lower.exp_shifted);
  fill(t.log_sum_exp, lower.log_sum_exp);
  fill(t.store_k, lower.store_k);
  fill(t.store_v, lower.store_v);
  fill(t.attention, lower.attention);
  fill(t.merge_attention, lower.merge_attention);
  fill(t.read_memory, lower.read_memory);
  fill(t.multiply_add, lower.multiply_add);
}

bool is_supported(const Level& level) { return !level.feature || cpu_features().*level.feature; }

const std::array<KernelTable, kNumLevels>& complete_tables() {
  static const std::array<KernelTable, kNumLevels> tables = [] {
    std::array<KernelTable, kNumLevels> result{};
    for (int i = 0; i < kNumLevels; ++i) {
      if (kLevels[i].table) result[i] = *kLevels[i].table;
      result[i].name = kLevels[i].name;
      if (i > 0) fill_missing(result[i], result[kLevels[i].fallback]);
    }
    return result;
  }();
  return tables;
}

}  // namespace

int num_isa_levels() { return kNumLevels; }

IsaLevel isa_level(int index) {
  const Level& level = kLevels[index];
  return {level.name, level.is_built, is_supported(level)};
}

const KernelTable* kernel_table(const char* level_name) {
  for (int i = 0; i < kNumLevels; ++i) {
    if (std::strcmp(kLevels[i].name, level_name) != 0) continue;
    return kLevels[i].is_built && is_supported(kLevels[i]) ? &complete_tables()[i] : nullptr;
  }
  return nullptr;
}

const char* best_isa_level() {
  for (int i = kNumLevels - 1; i > 0; --i) {
    if (kLevels[i].is_built && is_supported(kLevels[i])) return kLevels[i].name;
  }
  return kLevels[0].name;
}

}  // namespace edgert
