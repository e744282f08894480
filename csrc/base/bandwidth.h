// Measures how fast the threads can read memory.
#pragma once
#include <cstddef>
#include <cstdint>

namespace edgert {

// Reads num_bytes, a multiple of 256, from an address aligned to 64; returns what keeps the loads alive.
using ReadFunction = std::uint64_t (*)(const std::uint8_t* p, std::size_t num_bytes);

// Median of several sequential reads of num_bytes, split evenly over the threads; bytes per second.
double read_bandwidth(ReadFunction read, int num_threads, std::size_t num_bytes, int repeats);

}  // namespace edgert
