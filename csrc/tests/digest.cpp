// edgert_digest: one hash of every kernel and operation and of a small whole model, from inputs made of integers.
// Prints `name hash` lines that are equal on every machine, and lines with # that tell of this one. Fails if a level
// of this machine differs from scalar.
// edgert_digest --shapes N [--seed S]: every kernel instead on N random shapes for each format.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "base/fp_env.h"
#include "tests/digest_inputs.h"
#include "tests/kernel_digest.h"
#include "tests/model_digest.h"
#include "tests/random_shapes.h"

namespace edgert {
namespace {

std::vector<DigestCase> all_cases() {
  std::vector<DigestCase> cases = kernel_digest_cases();
  cases.push_back({"model.1_thread", [](const KernelTable& t) { return model_digest(t, 1, 90); }});
  cases.push_back({"model.3_threads_spans_of_7", [](const KernelTable& t) { return model_digest(t, 3, 7); }});
  return cases;
}

// The levels that are compared with scalar; prints what this machine has.
std::vector<const KernelTable*> other_levels() {
  std::vector<const KernelTable*> others;
  std::printf("# %s\n", cpu_name().c_str());
  for (int i = 0; i < num_isa_levels(); ++i) {
    const IsaLevel level = isa_level(i);
    const bool can_run = level.is_built && level.is_supported;
    std::printf("# %-12s %s\n", level.name, can_run ? "compared" : level.is_built ? "not supported here" : "not built");
    if (can_run && std::strcmp(level.name, "scalar") != 0) others.push_back(kernel_table(level.name));
  }
  return others;
}

int run() {
  const std::vector<const KernelTable*> others = other_levels();
  DigestHash total;
  int num_different = 0;
  const auto report = [&](const std::string& name, std::uint64_t digest) {
    std::printf("%s %016" PRIx64 "\n", name.c_str(), digest);
    total.add(digest);
  };
  for (const DigestCase& item : all_cases()) {
    const std::uint64_t expected = item.run(*kernel_table("scalar"));
    report(item.name, expected);
    for (const KernelTable* table : others) {
      const std::uint64_t found = item.run(*table);
      if (found == expected) continue;
      ++num_different;
      std::printf("# %s: %s differs from scalar: found %016" PRIx64 "\n", item.name.c_str(), table->name, found);
    }
  }
  report("math", math_digest());
  report("pack", pack_digest());
  std::printf("total %016" PRIx64 "\n", total.value());
  if (num_different > 0) std::printf("# %d digests differ from scalar\n", num_different);
  return num_different > 0 ? 1 : 0;
}

int run_shapes(int num_shapes, std::uint64_t seed) {
  const std::vector<const KernelTable*> others = other_levels();
  int num_different = 0;
  for (int f = 0; f < kNumFormats; ++f) {
    const auto format = static_cast<Format>(f);
    DigestHash hash;
    num_different += compare_random_shapes(format, others, num_shapes, seed, hash);
    std::printf("shapes.%s %016" PRIx64 "\n", spec(format).name, hash.value());
  }
  return num_different > 0 ? 1 : 0;
}

// The number after `name` among the arguments, else `otherwise`.
long long argument(int count, char** arguments, const char* name, long long otherwise) {
  for (int i = 1; i + 1 < count; ++i) {
    if (std::strcmp(arguments[i], name) == 0) return std::atoll(arguments[i + 1]);
  }
  return otherwise;
}

}  // namespace
}  // namespace edgert

int main(int count, char** arguments) {
  const edgert::FloatEnvironment environment;
  const long long num_shapes = edgert::argument(count, arguments, "--shapes", 0);
  if (num_shapes == 0) return edgert::run();
  const long long seed = edgert::argument(count, arguments, "--seed", 1);
  return edgert::run_shapes(static_cast<int>(num_shapes), static_cast<std::uint64_t>(seed));
}
