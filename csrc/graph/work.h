// The work of one step, taken chunk by chunk by whichever thread is there. A step is complete when its items are done,
// not when every thread has arrived: a thread that the system has put aside holds up nobody unless it holds a chunk.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>

namespace edgert {

// Items [0, total) of a step, in ranges. One thread, the owner, sets it up for a run (`close`, then `open`); all
// threads take from it, each from a range of its own while that lasts, so that what it reads lies in one run of memory,
// then from those of the others. Runs are told apart by a number, so that a thread that is late by a run takes nothing
// and touches nothing.
class Work {
 public:
  static constexpr std::int32_t kMaxRanges = 8;

  // Nothing of the former run can be taken any more.
  void close(std::uint32_t run) {
    for (auto& next : next_) next.store(tagged(run, kClosed), std::memory_order_release);
  }
  // Threads beyond num_ranges share. With one range the items are taken in their order.
  // REQUIRES: close(run) came before; 1 <= num_ranges.
  void open(std::uint32_t run, std::int32_t total, std::int32_t chunk, std::int32_t num_ranges) {
    num_ranges = std::min(num_ranges, kMaxRanges);
    total_.store(total, std::memory_order_relaxed);
    chunk_.store(chunk, std::memory_order_relaxed);
    num_ranges_.store(num_ranges, std::memory_order_relaxed);
    done_.store(tagged(run, 0), std::memory_order_relaxed);
    for (std::int32_t i = 0; i < num_ranges; ++i)
      next_[i].store(tagged(run, start_of(i, total, num_ranges)), std::memory_order_release);
  }

  // Takes a chunk; false when none is left, or the run is over.
  bool take(std::uint32_t run, int thread, std::int32_t& begin, std::int32_t& end) {
    const std::int32_t num_ranges = num_ranges_.load(std::memory_order_relaxed);
    for (std::int32_t i = 0; i < num_ranges; ++i)
      if (take_from((thread + i) % num_ranges, run, begin, end)) return true;
    return false;
  }
  // The items of a chunk have been computed.
  void finish(std::int32_t num_items) {
    done_.fetch_add(static_cast<std::uint64_t>(num_items), std::memory_order_release);
  }

  enum class State { running, complete, over };
  State state(std::uint32_t run) const {
    const std::uint64_t done = done_.load(std::memory_order_acquire);
    if (done >> 32 != run) return State::over;
    return static_cast<std::uint32_t>(done) >= static_cast<std::uint32_t>(total_.load(std::memory_order_relaxed))
               ? State::complete
               : State::running;
  }

 private:
  static constexpr std::uint32_t kClosed = 0xffffffffu;
  static std::uint64_t tagged(std::uint32_t run, std::uint32_t count) { return std::uint64_t{run} << 32 | count; }
  static std::uint32_t start_of(std::int32_t range, std::int32_t total, std::int32_t num_ranges) {
    return static_cast<std::uint32_t>(std::int64_t{total} * range / num_ranges);
  }

  bool take_from(std::int32_t range, std::uint32_t run, std::int32_t& begin, std::int32_t& end) {
    std::atomic<std::uint64_t>& cursor = next_[range];
    std::uint64_t next = cursor.load(std::memory_order_acquire);
    for (;;) {
      if (next >> 32 != run) return false;
      const auto first = static_cast<std::uint32_t>(next);
      // Read after `next` and before it changes, so they belong to the run.
      const std::uint32_t stop =
          start_of(range + 1, total_.load(std::memory_order_relaxed), num_ranges_.load(std::memory_order_relaxed));
      const auto chunk = static_cast<std::uint32_t>(chunk_.load(std::memory_order_relaxed));
      if (first >= stop) return false;
      const std::uint32_t last = stop - first < chunk ? stop : first + chunk;
      if (!cursor.compare_exchange_weak(next, tagged(run, last), std::memory_order_acq_rel, std::memory_order_acquire))
        continue;
      begin = static_cast<std::int32_t>(first);
      end = static_cast<std::int32_t>(last);
      return true;
    }
  }

  alignas(64) std::atomic<std::uint64_t> next_[kMaxRanges] = {};
  alignas(64) std::atomic<std::uint64_t> done_{0};
  std::atomic<std::int32_t> total_{0}, chunk_{1}, num_ranges_{1};
};

}  // namespace edgert
