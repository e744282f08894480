// Reads ranges of files in the background: by priority, past the page cache, at a bounded rate, and not at all any more
// once they are cancelled.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "io/file.h"
#include "io/rate_limit.h"

namespace edgert {

// Direct reads begin and end at multiples of this, in the file and in memory.
inline constexpr std::int64_t kDirectAlignment = 4096;

// Bytes from the aligned place before `offset` to it; where the range begins in its window.
inline constexpr std::int64_t window_lead(std::int64_t offset) { return offset % kDirectAlignment; }
// Bytes that memory for any range of `length` bytes needs, wherever the range begins: whole sectors around it.
inline constexpr std::int64_t window_bytes(std::int64_t length) {
  return (length + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment + kDirectAlignment;
}

// Smaller is sooner. Within one priority reads are begun in the order in which they were asked for.
enum class ReadPriority : std::uint8_t { demand, planned, predicted };

using ReadTag = std::uint64_t;  // the caller's name for a read; unique while it is under way

// Bytes [offset, offset + length) of a file. They arrive at out + window_lead(offset).
// REQUIRES: `out` is aligned to kDirectAlignment, has window_bytes(length) bytes, and stays until the read has ended.
struct ReadRequest {
  ReadTag tag = 0;
  std::int32_t file = 0;  // index into the reader's files
  std::int64_t offset = 0, length = 0;
  std::uint8_t* out = nullptr;
  ReadPriority priority = ReadPriority::planned;
};

enum class ReadOutcome : std::uint8_t { complete, failed, cancelled };

// Called on the reader's thread when nothing writes to the read's memory any more. Must be quick, and may not throw.
// `error`: of a failed read, what went wrong, with the file's path.
using ReadDone = std::function<void(ReadTag tag, ReadOutcome outcome, const std::string& error)>;

struct ReadCounters {
  std::int64_t num_reads = 0;  // requests to the system that have ended
  std::int64_t num_bytes = 0;  // that these gave, sectors around the ranges included
  double busy_s = 0;           // while at least one was under way
};

// One request to the system, as a trace shows it. Seconds of std::chrono::steady_clock since its epoch.
struct ReadEvent {
  ReadTag tag = 0;
  double begin_s = 0, end_s = 0;
  std::int64_t num_bytes = 0;
  ReadPriority priority = ReadPriority::planned;
};

// A trace ends when it has so many events of one kind.
inline constexpr std::size_t kMaxTraceEvents = 1'000'000;

// How requests reach the system. A test double stands in for the disk here.
class ReadBackend;
struct ReadChunk;
struct ReadResult;
class ReadQueue;

enum class ReadMethod : std::uint8_t {
  automatic,  // the first of the others that works on these files
  uring,      // io_uring, O_DIRECT
  threads,    // pread on threads, O_DIRECT
  buffered,   // pread on threads through the page cache, which is told to drop what was read
};

struct ReaderOptions {
  ReadMethod method = ReadMethod::automatic;
  std::int32_t depth = 8;                            // requests of chunk_bytes under way at a time, or as many bytes
  std::int64_t chunk_bytes = std::int64_t{1} << 20;  // most bytes of a request; a multiple of kDirectAlignment
  std::int64_t limit_bytes_per_s = 0;                // 0: none
  // What a test puts between the reader and the system; null: nothing.
  std::function<std::unique_ptr<ReadBackend>(std::unique_ptr<ReadBackend>)> wrap = nullptr;
};

// Small requests are more than `depth` at a time, until they have its bytes together.
inline constexpr std::int32_t kSmallRequests = 32;
inline std::int32_t most_requests(const ReaderOptions& options) { return std::max(options.depth, kSmallRequests); }

class Reader {
 public:
  // `files` outlive the reader. Throws std::system_error if the method that was asked for does not work here, or a
  // thread cannot be started.
  Reader(std::span<const File> files, const ReaderOptions& options, ReadDone done);
  // With a backend of the caller's: a test double.
  Reader(std::unique_ptr<ReadBackend> backend, const ReaderOptions& options, ReadDone done);
  // Cancels what waits, and returns when nothing is under way.
  ~Reader();

  // Thread-safe, does not wait for the disk. REQUIRES: the range lies inside the file.
  void submit(const ReadRequest& request);
  // A read that has not been begun is begun sooner (or later) from now on. Nothing happens to one that has ended.
  void set_priority(ReadTag tag, ReadPriority priority);
  // What has not been begun of these reads never is; each ends as `cancelled`, or as `complete` if it had all arrived.
  void cancel(ReadTag tag);
  // The same for every read. Returns at once.
  void cancel_all();

  ReadMethod method() const;  // what is used: never `automatic`
  ReadCounters counters() const;
  bool is_idle() const;  // nothing waits and nothing is under way
  void start_trace();
  std::vector<ReadEvent> stop_trace();

 private:
  void run();
  double choose(std::vector<ReadChunk>& chunks);
  void account(const ReadResult& result);
  void wake();

  mutable std::mutex mutex_;  // of all that is not const, the backend's begin and wait apart
  std::unique_ptr<ReadBackend> backend_;
  std::unique_ptr<ReadQueue> queue_;
  RateLimit limit_;
  const ReadDone done_;
  const ReadMethod method_;
  bool is_woken_ = false, is_stopping_ = false, is_tracing_ = false;
  std::atomic<std::size_t> num_untold_ = 0;  // reads that have ended and whose callers do not know it yet
  ReadCounters counters_;
  double busy_since_s_ = 0;  // of what is under way now
  std::vector<ReadEvent> events_;
  std::thread thread_;
};

}  // namespace edgert
