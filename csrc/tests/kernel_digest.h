// Every kernel and operation on inputs made of integers: one hash each, the same on every machine.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/kernel_table.h"

namespace edgert {

struct DigestCase {
  std::string name;
  std::function<std::uint64_t(const KernelTable&)> run;
};

std::vector<DigestCase> kernel_digest_cases();

// A weight of random parts, which it keeps alive. fill: every byte of its codes, or -1.
std::shared_ptr<const WeightView> random_weight(Format format, int rows, int cols, std::uint64_t seed, int fill);

// Hash of the functions of base/math.h and of the packed blocks, which no table holds.
std::uint64_t math_digest();
std::uint64_t pack_digest();

}  // namespace edgert
