#include "base/bandwidth.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/memory.h"
#include "base/threads.h"

namespace edgert {
namespace {

constexpr std::size_t kStep = 256;
constexpr std::size_t kPrefetchBytes = 2048;

// The or of every 16-byte word: enough work to keep the loads, too little to limit them.
std::uint64_t read_all(const std::uint8_t* p, std::size_t num_bytes) {
  typedef std::uint64_t Words __attribute__((vector_size(16)));
  Words a{}, b{}, c{}, d{};
  for (std::size_t i = 0; i + kStep <= num_bytes; i += kStep) {
    for (std::size_t line = 0; line < kStep; line += 64) {
      __builtin_prefetch(p + i + line + kPrefetchBytes);
      const auto* w = reinterpret_cast<const Words*>(p + i + line);
      a |= w[0];
      b |= w[1];
      c |= w[2];
      d |= w[3];
    }
  }
  const Words e = (a | b) | (c | d);
  return e[0] | e[1];
}

}  // namespace

double read_bandwidth(int num_threads, std::size_t num_bytes, int repeats) {
  Memory memory(num_bytes);
  std::memset(memory.data(), 1, num_bytes);
  const std::size_t share = num_bytes / static_cast<std::size_t>(num_threads) / kStep * kStep;
  std::vector<double> seconds;
  std::vector<std::uint64_t> sinks(static_cast<std::size_t>(num_threads) * 8);
  for (int r = 0; r < repeats; ++r) {
    const auto start = std::chrono::steady_clock::now();
    run_on_threads(num_threads, [&](int t) {
      sinks[static_cast<std::size_t>(t) * 8] = read_all(memory.data() + share * static_cast<std::size_t>(t), share);
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
