// Measures how fast the threads can read memory.
#pragma once
#include <cstddef>

namespace edgert {

// Median of several sequential reads of num_bytes, split evenly over the threads; bytes per second.
double read_bandwidth(int num_threads, std::size_t num_bytes, int repeats);

}  // namespace edgert
