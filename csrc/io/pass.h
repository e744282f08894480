// What the threads of a pass share with the reader: a lock, a bell, and whether the pass goes on.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace edgert {

// A read failed; the message names the file.
struct ReadError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The thread that began the pass waited for the disk. Seconds as those of ReadEvent.
struct WaitEvent {
  std::int32_t weight = -1;  // a WeightId; -1: for room, or for any expert
  double begin_s = 0, end_s = 0;
};

// Guards the state of everything that is streamed. All but is_stopped want the lock.
class Pass {
 public:
  // cancel_reads: ends what is being read, quickly; called with the lock held.
  explicit Pass(std::function<void()> cancel_reads) : cancel_reads_(std::move(cancel_reads)) {}

  std::unique_lock<std::mutex> lock() const { return std::unique_lock<std::mutex>(mutex_); }
  bool is_running() const { return is_running_; }
  bool is_stopped() const { return is_stopped_.load(std::memory_order_acquire); }

  // should_stop: asked now and then while the thread that begins the pass waits; may be null.
  void begin(std::function<bool()> should_stop);
  // No read begins any more; what runs may be stopped still.
  void end() { is_running_ = false; }
  // Forgets that the pass was stopped. Returns true if it was not; false if it was; throws ReadError if a read failed,
  // std::invalid_argument if what was read is wrong.
  bool reset();

  // A thread has waited for a weight since `start`: returns the seconds, and keeps them for the trace, if one runs.
  double waited(std::int32_t weight, std::chrono::steady_clock::time_point start);
  void start_trace();
  std::vector<WaitEvent> stop_trace();

  void stop();
  // Without the lock: stops the pass if the thread that began it calls, and should_stop says so.
  void poll();
  void fail(const std::string& error, bool is_of_content = false);
  // Without the lock, on any thread: runs `work`, which throws std::invalid_argument where what was read is wrong.
  // False: it did, and the pass has failed.
  template <typename Work>
  bool attempt(Work&& work) {
    try {
      work();
      return true;
    } catch (const std::invalid_argument& error) {
      const std::unique_lock<std::mutex> held = lock();
      fail(error.what(), true);
      return false;
    }
  }
  // Something has changed: whoever waits looks again.
  void ring() {
    last_change_ = std::chrono::steady_clock::now();
    changed_.notify_all();
  }
  // Waits until is_there(). Returns false as soon as the pass is stopped. is_hopeless(): nothing is on its way; where
  // that lasts, the pass fails.
  template <typename IsThere, typename IsHopeless>
  bool wait(std::unique_lock<std::mutex>& lock, IsThere&& is_there, IsHopeless&& is_hopeless) {
    while (!is_there()) {
      if (is_stopped()) return false;
      if (!wait_a_moment(lock) && is_hopeless() && is_overdue() && !is_there())
        fail("weights: found no room for the next piece, expected a ring that holds it; give it more memory");
    }
    return true;
  }
  // The same whether or not the pass is stopped.
  template <typename IsThere>
  void settle(std::unique_lock<std::mutex>& lock, IsThere&& is_there) {
    changed_.wait(lock, is_there);
  }

 private:
  bool wait_a_moment(std::unique_lock<std::mutex>& lock);  // false: nothing has changed
  bool is_overdue() const;

  const std::function<void()> cancel_reads_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::chrono::steady_clock::time_point last_change_;
  bool is_running_ = false;
  std::atomic<bool> is_stopped_{false};
  std::string error_;
  bool is_of_content_ = false;
  std::function<bool()> should_stop_;
  std::thread::id caller_;
  std::chrono::steady_clock::time_point last_poll_;  // the caller's own
  bool is_tracing_ = false;
  std::vector<WaitEvent> waits_;
};

}  // namespace edgert
