#include "base/bandwidth.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/memory.h"
#include "base/threads.h"

namespace edgert {
namespace {

constexpr std::size_t kStep = 256;
constexpr std::int64_t kMultiplyAddRounds = 1 << 20;

// run(thread) returns how much it did. Median over the repeats of what all threads did a second.
template <class Run>
double median_rate(int num_threads, int repeats, Run run) {
  std::vector<double> rates, done(static_cast<std::size_t>(num_threads) * 8);  // a cache line each
  for (int r = 0; r < repeats; ++r) {
    const auto start = std::chrono::steady_clock::now();
    run_on_threads(num_threads, [&](int t) { done[static_cast<std::size_t>(t) * 8] = run(t); });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    rates.push_back(std::accumulate(done.begin(), done.end(), 0.0) / seconds);
  }
  std::nth_element(rates.begin(), rates.begin() + repeats / 2, rates.end());
  return rates[static_cast<std::size_t>(repeats / 2)];
}

}  // namespace

double read_bandwidth(ReadFunction read, int num_threads, std::size_t num_bytes, int repeats) {
  Memory memory(num_bytes);
  std::memset(memory.data(), 1, num_bytes);
  const std::size_t share = num_bytes / static_cast<std::size_t>(num_threads) / kStep * kStep;
  std::vector<std::uint64_t> sinks(static_cast<std::size_t>(num_threads) * 8);
  const double rate = median_rate(num_threads, repeats, [&](int t) {
    sinks[static_cast<std::size_t>(t) * 8] = read(memory.data() + share * static_cast<std::size_t>(t), share);
    return static_cast<double>(share);
  });
  volatile std::uint64_t sink = sinks[0];
  (void)sink;
  return rate;
}

double fma_peak(MultiplyAddFunction multiply_add, int num_threads, int repeats) {
  return median_rate(num_threads, repeats, [&](int) {
    alignas(64) float values[16] = {1.0f};
    return static_cast<double>(multiply_add(values, kMultiplyAddRounds));
  });
}

}  // namespace edgert
