// The work of one step, taken chunk by chunk by whichever thread is there. A step is complete when its items are done,
// not when every thread has arrived: a thread that the system has put aside holds up nobody unless it holds a chunk.
#pragma once
#include <atomic>
#include <cstdint>

namespace edgert {

// Items [0, total) of a step. One thread, the owner, sets it up for a run (`close`, then `open`); all threads take from
// it. Runs are told apart by a number, so that a thread that is late by a run takes nothing and touches nothing.
class Work {
 public:
  // Nothing of the former run can be taken any more.
  void close(std::uint32_t run) { next_.store(tagged(run, kClosed), std::memory_order_release); }
  // REQUIRES: close(run) came before.
  void open(std::uint32_t run, std::int32_t total, std::int32_t chunk) {
    total_.store(total, std::memory_order_relaxed);
    chunk_.store(chunk, std::memory_order_relaxed);
    done_.store(tagged(run, 0), std::memory_order_relaxed);
    next_.store(tagged(run, 0), std::memory_order_release);
  }

  // Takes a chunk; false when none is left, or the run is over.
  bool take(std::uint32_t run, std::int32_t& begin, std::int32_t& end) {
    std::uint64_t next = next_.load(std::memory_order_acquire);
    for (;;) {
      if (next >> 32 != run) return false;
      const auto first = static_cast<std::uint32_t>(next);
      // Read after `next` and before it changes, so they belong to the run.
      const auto total = static_cast<std::uint32_t>(total_.load(std::memory_order_relaxed));
      const auto chunk = static_cast<std::uint32_t>(chunk_.load(std::memory_order_relaxed));
      if (first >= total) return false;
      const std::uint32_t last = total - first < chunk ? total : first + chunk;
      if (!next_.compare_exchange_weak(next, tagged(run, last), std::memory_order_acq_rel, std::memory_order_acquire))
        continue;
      begin = static_cast<std::int32_t>(first);
      end = static_cast<std::int32_t>(last);
      return true;
    }
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

  alignas(64) std::atomic<std::uint64_t> next_{0};
  std::atomic<std::int32_t> total_{0}, chunk_{1};
  alignas(64) std::atomic<std::uint64_t> done_{0};
};

}  // namespace edgert
