#include "graph/linear_timer.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "base/fp_env.h"
#include "base/threads.h"
#include "graph/work.h"

namespace edgert {
namespace {

constexpr std::int64_t kChunkBytes = 16 << 10;

void take_chunks(LinearFunction function, const WeightView& w, const LinearInput& x, const LinearOutput& y, Work& work,
                 std::uint32_t run, int thread) {
  std::int32_t begin = 0, end = 0;
  while (work.take(run, thread, begin, end)) {
    function(w, x, y, begin, end);
    work.finish(end - begin);
  }
  int spins = 0;
  while (work.state(run) == Work::State::running) spin_wait(spins);
}

}  // namespace

std::int64_t strip_bytes(const WeightView& w) {
  std::int64_t num_bytes = 0;
  for (int p = 0; p < spec(w.format).num_parts; ++p) num_bytes += part_bytes(w.format, p, kStripRows, w.cols);
  return num_bytes;
}

ChunkSizes strips_per_chunk(const WeightView& w, int num_threads) {
  if (num_threads == 1) return {w.strips, w.strips};
  const std::int64_t num_bytes = strip_bytes(w);
  const auto wanted = static_cast<std::int32_t>((kChunkBytes + num_bytes - 1) / num_bytes);
  const std::int32_t smallest = std::max(1, std::min(wanted, w.strips / num_threads));
  return {.largest = std::max(smallest, w.strips / (num_threads * 16)), .smallest = smallest};
}

std::vector<double> time_linear(LinearFunction function, std::span<const WeightView> weights, const LinearInput& x,
                                const LinearOutput& y, int num_threads, int passes) {
  const ChunkSizes chunk = strips_per_chunk(weights.front(), num_threads);
  std::vector<Work> works(weights.size());
  std::vector<double> seconds;
  for (std::uint32_t run = 1; run <= static_cast<std::uint32_t>(passes); ++run) {
    for (Work& work : works) {
      work.close(run);
      work.open(run, weights.front().strips, chunk, num_threads);
    }
    std::atomic<int> num_started{0};
    std::atomic<bool> is_open{false};
    std::chrono::steady_clock::time_point start;
    run_on_threads(num_threads, [&](int thread) {
      const FloatEnvironment environment;
      // What it takes to start the threads is not counted. The last one starts the clock before any of them works: a
      // thread that the system puts aside here would else find the work done, and the time short.
      if (num_started.fetch_add(1) == num_threads - 1) {
        start = std::chrono::steady_clock::now();
        is_open.store(true);
      }
      int spins = 0;
      while (!is_open.load()) spin_wait(spins);
      for (std::size_t i = 0; i < weights.size(); ++i) take_chunks(function, weights[i], x, y, works[i], run, thread);
    });
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    seconds.push_back(elapsed.count() / static_cast<double>(weights.size()));
  }
  return seconds;
}

}  // namespace edgert
