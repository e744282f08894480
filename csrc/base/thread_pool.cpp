#include "base/thread_pool.h"

#include <stdexcept>

namespace edgert {
namespace {

// About 50 microseconds: longer than the gaps inside a step, far shorter than a pause between answers.
constexpr int kSpins = 2000;

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

template <typename T>
void wait_while_equal(std::atomic<T>& value, T old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause();
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

}  // namespace

void SpinBarrier::wait() {
  if (num_threads_ == 1) return;
  const std::uint32_t phase = phase_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
    phase_.notify_all();
    return;
  }
  wait_while_equal(phase_, phase);
}

ThreadPool::ThreadPool(int num_threads) : num_threads_(num_threads) {
  if (num_threads < 1 || num_threads > 1024) throw std::invalid_argument("threads: expected 1 to 1024");
  for (int i = 1; i < num_threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::run(Function function, void* context) {
  function_ = function;
  context_ = context;
  running_.store(num_threads_ - 1, std::memory_order_relaxed);
  if (num_threads_ > 1) {
    epoch_.fetch_add(1, std::memory_order_release);
    epoch_.notify_all();
  }
  function(context, 0);
  for (int left = running_.load(std::memory_order_acquire); left != 0;
       left = running_.load(std::memory_order_acquire)) {
    wait_while_equal(running_, left);
  }
}

void ThreadPool::work(int thread) {
  std::uint32_t seen = 0;
  for (;;) {
    wait_while_equal(epoch_, seen);
    seen = epoch_.load(std::memory_order_acquire);
    if (stop_) return;
    function_(context_, thread);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_all();
  }
}

}  // namespace edgert
