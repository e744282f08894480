// Reads resident weights into the arena, on threads of its own.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/memory.h"
#include "io/reader.h"
#include "weights/load_plan.h"
#include "weights/ring.h"

namespace edgert {

class Loading {
 public:
  // Files, what the items point to, and the arena outlive it. direct: the reads pass the page cache by, as these
  // options say; nothing: through it, whose pages stay. Throws std::bad_alloc, or std::system_error without a thread.
  Loading(std::span<const File> files, std::vector<LoadItem> items, std::uint8_t* arena, int num_threads,
          const std::optional<ReaderOptions>& direct);
  // Stops what still reads.
  ~Loading();
  Loading(const Loading&) = delete;
  Loading& operator=(const Loading&) = delete;

  std::int64_t total_bytes() const { return total_bytes_; }
  std::int64_t done_bytes() const { return done_bytes_.load(); }
  // Waits until nothing is left to do, or something has failed, or the time is over; true: not the last.
  bool wait_for(std::chrono::milliseconds time);
  // REQUIRES: wait_for has returned true. Throws ReadError, what File::read throws, or std::invalid_argument for
  // contents that are wrong.
  void rethrow();

 private:
  void work();
  void work_direct();
  void work_buffered();
  void submit_reads();
  void read_ended(std::size_t task, ReadOutcome outcome, const std::string& error);
  void read_ahead(std::size_t task) const;
  void fail(std::exception_ptr error);
  void stop();
  void put(const LoadTask& task, std::uint8_t* memory) const;
  void put(const LoadRange& range, std::uint8_t* memory) const;
  void put_outliers(const LoadTask& task, std::uint8_t* memory) const;
  void read(const PartAddress& address, std::uint8_t* out) const;

  const std::span<const File> files_;
  const std::vector<LoadItem> items_;
  std::uint8_t* const arena_;
  const std::vector<LoadTask> tasks_;
  std::int64_t total_bytes_ = 0;
  std::atomic<std::int64_t> done_bytes_{0};

  std::mutex mutex_;  // of all that follows, up to the threads
  std::condition_variable has_work_, has_ended_;
  std::size_t next_ = 0;  // task that is not begun
  int num_running_ = 0;   // threads
  bool is_stopping_ = false;
  std::exception_ptr error_;

  // Of direct reads.
  struct Buffer {
    std::int64_t place = -1;  // in the ring
    std::int32_t reads_left = 0;
  };
  Memory memory_;
  Ring ring_;
  std::vector<Buffer> buffers_;    // of each task
  std::deque<std::size_t> ready_;  // tasks that were read
  std::size_t num_put_ = 0;        // tasks

  std::unique_ptr<Reader> reader_;
  std::vector<std::thread> threads_;
};

}  // namespace edgert
