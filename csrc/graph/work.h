// The work of one step, taken chunk by chunk by whichever thread is there. A step is complete when its items are done,
// not when every thread has arrived: a thread that the system has put aside holds up nobody unless it holds a chunk.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>

namespace edgert {

// How many items a thread takes at a time: the largest number, and towards the end of a range fewer, so that the
// threads end together.
struct ChunkSizes {
  std::int32_t largest = 1, smallest = 1;
};

// Items [0, total) of a step, in ranges. One thread, the owner, sets it up for a run (`close`, then `open`); all
// threads take from it, each from a range of its own while that lasts, so that what it reads lies in one run of memory,
// then from those of the others. Runs are told apart by a number, so that a thread that is late by a run takes nothing
// and touches nothing.
class Work {
 public:
  static constexpr std::int32_t kMaxRanges = 8;

  // Nothing of the former run can be taken any more.
  void close(std::uint32_t run) {
    std::int32_t i = num_ranges_.load(std::memory_order_relaxed);
    do next_[--i].store(tagged(run, kClosed), std::memory_order_release);
    while (i > 0);
  }
  // Threads beyond num_ranges share. With one range the items are taken in their order.
  // REQUIRES: close(run) came before; 1 <= num_ranges.
  void open(std::uint32_t run, std::int32_t total, ChunkSizes chunk, std::int32_t num_ranges) {
    num_ranges = std::min(num_ranges, kMaxRanges);
    total_.store(total, std::memory_order_relaxed);
    largest_.store(chunk.largest, std::memory_order_relaxed);
    smallest_.store(chunk.smallest, std::memory_order_relaxed);
    num_ranges_.store(num_ranges, std::memory_order_relaxed);
    done_.store(tagged(run, 0), std::memory_order_relaxed);
    std::int32_t begin = 0;
    for (std::int32_t i = 0; i < num_ranges; ++i) {
      const std::int32_t end = i + 1 == num_ranges ? total : start_of(i + 1, total, num_ranges);
      end_[i].store(end, std::memory_order_release);  // whoever sees it sees that the former run is closed
      next_[i].store(tagged(run, static_cast<std::uint32_t>(begin)), std::memory_order_release);
      begin = end;
    }
  }

  // Takes a chunk; false when none is left, or the run is over.
  bool take(std::uint32_t run, int thread, std::int32_t& begin, std::int32_t& end) {
    const std::int32_t num_ranges = num_ranges_.load(std::memory_order_relaxed);
    const std::int32_t own = thread < num_ranges ? thread : thread % num_ranges;
    if (take_from(own, run, begin, end)) return true;
    for (std::int32_t i = own + 1; i < own + num_ranges; ++i)
      if (take_from(i < num_ranges ? i : i - num_ranges, run, begin, end)) return true;
    return false;
  }
  // Whether a chunk that was taken is all there is. REQUIRES: its items are not finished yet.
  bool is_all(std::int32_t begin, std::int32_t end) const {
    return end - begin == total_.load(std::memory_order_relaxed);
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
  static std::int32_t start_of(std::int32_t range, std::int32_t total, std::int32_t num_ranges) {
    return static_cast<std::int32_t>(std::int64_t{total} * range / num_ranges);
  }

  bool take_from(std::int32_t range, std::uint32_t run, std::int32_t& begin, std::int32_t& end) {
    std::atomic<std::uint64_t>& cursor = next_[range];
    std::uint64_t next = cursor.load(std::memory_order_acquire);
    for (;;) {
      if (next >> 32 != run) return false;
      const auto first = static_cast<std::uint32_t>(next);
      // Read after `next` and before it changes, so they belong to the run.
      const auto stop = static_cast<std::uint32_t>(end_[range].load(std::memory_order_acquire));
      const auto largest = static_cast<std::uint32_t>(largest_.load(std::memory_order_relaxed));
      const auto smallest = static_cast<std::uint32_t>(smallest_.load(std::memory_order_relaxed));
      if (first >= stop) return false;
      const std::uint32_t left = stop - first, size = std::min(largest, std::max(smallest, left / 2));
      const std::uint32_t last = left < size ? stop : first + size;
      if (!cursor.compare_exchange_weak(next, tagged(run, last), std::memory_order_acq_rel, std::memory_order_acquire))
        continue;
      begin = static_cast<std::int32_t>(first);
      end = static_cast<std::int32_t>(last);
      return true;
    }
  }

  alignas(64) std::atomic<std::uint64_t> next_[kMaxRanges] = {};
  alignas(64) std::atomic<std::uint64_t> done_{0};
  std::atomic<std::int32_t> total_{0}, largest_{1}, smallest_{1}, num_ranges_{1};
  std::atomic<std::int32_t> end_[kMaxRanges] = {};
};

}  // namespace edgert
