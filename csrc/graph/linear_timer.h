// How long a matrix product takes from memory: what the choice of kernels and benchmarks/kernels.py stand on.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "graph/work.h"
#include "kernels/kernel_table.h"

namespace edgert {

// Seconds of one product, for each of `passes` passes over all the weights: one after the other, each by all threads,
// cut into chunks and waited for as a step of the plan does. REQUIRES: all weights have the shape of the first.
std::vector<double> time_linear(LinearFunction function, std::span<const WeightView> weights, const LinearInput& x,
                                const LinearOutput& y, int num_threads, int passes);

// Bytes of one strip of a weight, in all its parts.
std::int64_t strip_bytes(const WeightView& w);

// Strips that a thread takes at a time: many chunks a thread, so that the last ones end together, but none so small
// that taking it costs more than computing it.
ChunkSizes strips_per_chunk(const WeightView& w, int num_threads);

}  // namespace edgert
