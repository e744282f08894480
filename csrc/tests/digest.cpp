// edgert_digest: one hash of every kernel and operation and of a small whole model, from inputs made of integers.
// Prints `name hash` lines that are equal on every machine, and lines with # that tell of this one. Fails if a level
// of this machine differs from scalar.
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "base/fp_env.h"
#include "tests/digest_inputs.h"
#include "tests/kernel_digest.h"
#include "tests/model_digest.h"

namespace edgert {
namespace {

std::vector<DigestCase> all_cases() {
  std::vector<DigestCase> cases = kernel_digest_cases();
  cases.push_back({"model.1_thread", [](const KernelTable& t) { return model_digest(t, 1, 90); }});
  cases.push_back({"model.3_threads_spans_of_7", [](const KernelTable& t) { return model_digest(t, 3, 7); }});
  return cases;
}

int run() {
  std::vector<const KernelTable*> others;
  std::printf("# %s\n", cpu_name().c_str());
  for (int i = 0; i < num_isa_levels(); ++i) {
    const IsaLevel level = isa_level(i);
    const bool can_run = level.is_built && level.is_supported;
    std::printf("# %-12s %s\n", level.name, can_run ? "compared" : level.is_built ? "not supported here" : "not built");
    if (can_run && std::strcmp(level.name, "scalar") != 0) others.push_back(kernel_table(level.name));
  }
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

}  // namespace
}  // namespace edgert

int main() {
  const edgert::FloatEnvironment environment;
  return edgert::run();
}
