// Measures how fast the threads can read memory, and multiply.
#pragma once
#include <cstddef>
#include <cstdint>

namespace edgert {

// Reads num_bytes, a multiple of 256, from an address aligned to 64; returns what keeps the loads alive.
using ReadFunction = std::uint64_t (*)(const std::uint8_t* p, std::size_t num_bytes);

// Median of several sequential reads of num_bytes, split evenly over the threads; bytes per second.
double read_bandwidth(ReadFunction read, int num_threads, std::size_t num_bytes, int repeats);

// Multiplies and adds in registers on values [16], so many rounds; returns the number of multiply-adds.
using MultiplyAddFunction = std::int64_t (*)(float* values, std::int64_t rounds);

// Median of several runs of some milliseconds on each thread; multiply-adds per second.
double fma_peak(MultiplyAddFunction multiply_add, int num_threads, int repeats);

}  // namespace edgert
