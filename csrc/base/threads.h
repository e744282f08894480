// Threads that work together: for one long task, or step after step.
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace edgert {

// Calls body(thread) once on each of num_threads threads, the caller being thread 0; returns when all are done.
// REQUIRES: body does not throw.
template <typename F>
void run_on_threads(int num_threads, F&& body) {
  std::vector<std::thread> threads;
  for (int i = 1; i < num_threads; ++i) threads.emplace_back([&body, i] { body(i); });
  body(0);
  for (std::thread& thread : threads) thread.join();
}

// Waits a moment inside a spin loop; `spins` counts the turns. Spins first: what is waited for is short. Then lets
// other threads have the core, because one of them may hold what is waited for.
void spin_wait(int& spins);

// Helpers that are woken step after step. Nobody waits for one that the system has given no core: a helper that comes
// late finds the work taken. Idle helpers spin briefly, then sleep.
class Team {
 public:
  using Function = void (*)(void* context, int thread);

  // Each wake makes every helper (threads 1 to num_threads - 1) call function(context, thread), at some time or, where
  // it is late, once for several wakes. Throws std::invalid_argument unless 1 <= num_threads <= 1024.
  Team(int num_threads, Function function, void* context);
  // Returns when every helper has ended.
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int num_threads() const { return num_threads_; }
  void wake();

 private:
  void work(int thread);

  const int num_threads_;
  const Function function_;
  void* const context_;
  std::atomic<bool> stop_{false};
  alignas(64) std::atomic<std::uint32_t> wakes_{0};
  std::vector<std::thread> helpers_;
};

}  // namespace edgert
