#include "base/threads.h"

#include <stdexcept>
#include <string>

namespace edgert {
namespace {

// Some tens of microseconds: longer than the gaps inside a step, far shorter than a pause between answers.
constexpr int kSpins = 2000;

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

}  // namespace

void spin_wait(int& spins) {
  if (spins < kSpins) {
    ++spins;
    pause();
  } else {
    std::this_thread::yield();
  }
}

Team::Team(int num_threads, Function function, void* context)
    : num_threads_(num_threads), function_(function), context_(context) {
  if (num_threads < 1 || num_threads > 1024)
    throw std::invalid_argument("threads: found " + std::to_string(num_threads) + ", expected 1 to 1024");
  for (int i = 1; i < num_threads; ++i) helpers_.emplace_back([this, i] { work(i); });
}

Team::~Team() {
  stop_.store(true);
  wake();
  for (std::thread& helper : helpers_) helper.join();
}

void Team::wake() {
  if (num_threads_ == 1) return;
  wakes_.fetch_add(1, std::memory_order_release);
  wakes_.notify_all();
}

void Team::work(int thread) {
  std::uint32_t seen = 0;
  for (;;) {
    for (int i = 0; i < kSpins && wakes_.load(std::memory_order_acquire) == seen; ++i) pause();
    while (wakes_.load(std::memory_order_acquire) == seen) wakes_.wait(seen, std::memory_order_acquire);
    seen = wakes_.load(std::memory_order_acquire);
    if (stop_.load()) return;
    function_(context_, thread);
  }
}

}  // namespace edgert
