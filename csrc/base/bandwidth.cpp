#include "base/bandwidth.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "base/memory.h"
#include "base/threads.h"

namespace edgert {
namespace {

constexpr std::size_t kStep = 256;

}  // namespace

double read_bandwidth(ReadFunction read, int num_threads, std::size_t num_bytes, int repeats) {
  Memory memory(num_bytes);
  std::memset(memory.data(), 1, num_bytes);
  const std::size_t share = num_bytes / static_cast<std::size_t>(num_threads) / kStep * kStep;
  std::vector<double> seconds;
  std::vector<std::uint64_t> sinks(static_cast<std::size_t>(num_threads) * 8);
  for (int r = 0; r < repeats; ++r) {
    const auto start = std::chrono::steady_clock::now();
    run_on_threads(num_threads, [&](int t) {
      sinks[static_cast<std::size_t>(t) * 8] = read(memory.data() + share * static_cast<std::size_t>(t), share);
    });
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  volatile std::uint64_t sink = sinks[0];
  (void)sink;
  std::nth_element(seconds.begin(), seconds.begin() + repeats / 2, seconds.end());
  return static_cast<double>(share * static_cast<std::size_t>(num_threads)) /
         seconds[static_cast<std::size_t>(repeats / 2)];
}

}  // namespace edgert
