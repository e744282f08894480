// Reads with pread on threads: past the page cache, or through it and out of it again.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <utility>

#include "io/descriptors.h"
#include "io/read_backend.h"

namespace edgert {
namespace {

class ThreadsBackend final : public ReadBackend {
 public:
  ThreadsBackend(std::span<const File> files, std::int32_t num_slots, bool is_direct)
      : is_direct_(is_direct), descriptors_(files, is_direct) {
    try {
      for (std::int32_t i = 0; i < num_slots; ++i) threads_.emplace_back([this] { work(); });
    } catch (...) {
      stop();
      throw;
    }
  }
  ~ThreadsBackend() override { stop(); }

  ReadMethod method() const override { return is_direct_ ? ReadMethod::threads : ReadMethod::buffered; }
  const std::string& path(std::int32_t file) const override { return descriptors_.path(file); }

  void begin(const ReadChunk& chunk) override {
    {
      const std::lock_guard lock(mutex_);
      chunks_.push_back(chunk);
    }
    has_chunk_.notify_one();
  }

  void wait(double timeout_s, std::vector<ReadResult>& results) override {
    std::unique_lock lock(mutex_);
    const auto is_over = [this] { return !results_.empty() || is_woken_; };
    if (timeout_s < 0)
      has_result_.wait(lock, is_over);
    else
      has_result_.wait_for(lock, std::chrono::duration<double>(timeout_s), is_over);
    is_woken_ = false;
    results.insert(results.end(), results_.begin(), results_.end());
    results_.clear();
  }

  void wake() override {
    {
      const std::lock_guard lock(mutex_);
      is_woken_ = true;
    }
    has_result_.notify_one();
  }

 private:
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
    }
    has_chunk_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      has_chunk_.wait(lock, [this] { return is_stopping_ || !chunks_.empty(); });
      if (chunks_.empty()) return;
      const ReadChunk chunk = chunks_.front();
      chunks_.pop_front();
      lock.unlock();
      const ReadResult result = read(chunk);
      lock.lock();
      results_.push_back(result);
      has_result_.notify_one();
    }
  }

  ReadResult read(const ReadChunk& chunk) const {
    const int descriptor = descriptors_[chunk.file];
    ssize_t got = -1;
    do got = pread(descriptor, chunk.out, static_cast<std::size_t>(chunk.length), chunk.offset);
    while (got < 0 && errno == EINTR);
    if (got < 0) return {chunk.slot, errno, 0};
#ifdef POSIX_FADV_DONTNEED
    if (!is_direct_) posix_fadvise(descriptor, chunk.offset, chunk.length, POSIX_FADV_DONTNEED);
#endif
    return {chunk.slot, 0, got};
  }

  const bool is_direct_;
  const Descriptors descriptors_;
  std::mutex mutex_;  // of all that follows
  std::condition_variable has_chunk_, has_result_;
  std::deque<ReadChunk> chunks_;
  std::vector<ReadResult> results_;
  bool is_woken_ = false, is_stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<ReadBackend> make_threads_backend(std::span<const File> files, std::int32_t num_slots, bool is_direct) {
  return std::make_unique<ThreadsBackend>(files, num_slots, is_direct);
}

}  // namespace edgert
