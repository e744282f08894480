// A fixed team of threads that run one function together. Idle workers spin briefly, then sleep.
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace edgert {

// A barrier for a fixed number of threads: spins, then sleeps, so that more threads than cores still make progress.
class SpinBarrier {
 public:
  explicit SpinBarrier(int num_threads) : num_threads_(num_threads) {}
  void wait();

 private:
  const int num_threads_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<std::uint32_t> phase_{0};
};

class ThreadPool {
 public:
  using Function = void (*)(void* context, int thread);

  // num_threads counts the caller, which is thread 0 of every run.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }
  // Calls function(context, thread) once on every thread; returns when all are done. One caller at a time.
  // REQUIRES: function does not throw.
  void run(Function function, void* context);

  template <typename F>
  void run(F&& body) {
    run([](void* context, int thread) { (*static_cast<std::remove_reference_t<F>*>(context))(thread); }, &body);
  }

 private:
  void work(int thread);

  const int num_threads_;
  Function function_ = nullptr;
  void* context_ = nullptr;
  bool stop_ = false;
  alignas(64) std::atomic<std::uint32_t> epoch_{0};
  alignas(64) std::atomic<int> running_{0};
  std::vector<std::thread> workers_;
};

}  // namespace edgert
