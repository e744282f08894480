// Every matrix product of every level against scalar, on random shapes.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/kernel_table.h"
#include "tests/digest_inputs.h"

namespace edgert {

// Runs each kernel of each table that takes the tokens of a shape; prints a line with # for a kernel that differs from
// the first one of the scalar table in any bit, or that writes where it should not. Returns how many did. The hash is
// of scalar's results: equal on every machine.
int compare_random_shapes(Format format, const std::vector<const KernelTable*>& tables, int num_shapes,
                          std::uint64_t seed, DigestHash& hash);

}  // namespace edgert
