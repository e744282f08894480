// Counter-based random numbers: Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
#pragma once
#include <array>
#include <cstdint>

namespace edgert {

// The four words of one counter under one key.
std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

// A double in [0, 1) for the sample `index` of a request at an absolute position: the high 53 bits of the first two
// words (word 0 is the high half), times 2^-53. Key: the seed's two halves; counter: position (low, high), index, 0.
double uniform(std::uint64_t seed, std::uint32_t index, std::uint64_t position);

}  // namespace edgert
