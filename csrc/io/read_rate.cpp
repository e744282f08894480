#include "io/read_rate.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>
#include <system_error>
#include <vector>

#include "base/memory.h"

namespace edgert {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

ReadRate measure_read_rate(const File& file, std::int64_t offset, std::int64_t length, double most_s,
                           const ReaderOptions& options) {
  file.check_range(offset, length);
  std::mutex mutex;  // of what follows
  std::condition_variable has_ended;
  std::vector<ReadTag> free_slots;
  std::string failure;
  std::int64_t num_bytes = 0;
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(options.depth) * 2);
  // As many wait as are under way, so that the next one begins at once.
  const std::int64_t slot_bytes = window_bytes(options.chunk_bytes);
  const Memory memory(lengths.size() * static_cast<std::size_t>(slot_bytes));
  std::memset(memory.data(), 1, memory.num_bytes());  // what is touched for the first time would cost the reads time
  for (ReadTag slot = lengths.size(); slot-- > 0;) free_slots.push_back(slot);

  Reader reader({&file, 1}, options, [&](ReadTag slot, ReadOutcome outcome, const std::string& error) {
    const std::lock_guard lock(mutex);
    if (outcome == ReadOutcome::complete) num_bytes += lengths[slot];
    if (outcome == ReadOutcome::failed) failure = error;
    free_slots.push_back(slot);
    has_ended.notify_one();
  });
  const Clock::time_point start = Clock::now();
  std::unique_lock lock(mutex);
  // However slow it is, something is read.
  const auto is_over = [&] { return !failure.empty() || (num_bytes > 0 && seconds_since(start) >= most_s); };
  for (std::int64_t next = 0; next < length && !is_over();) {
    if (free_slots.empty()) {
      has_ended.wait(lock);
      continue;
    }
    const ReadTag slot = free_slots.back();
    free_slots.pop_back();
    lengths[slot] = std::min(options.chunk_bytes, length - next);
    const ReadRequest request{.tag = slot,
                              .offset = offset + next,
                              .length = lengths[slot],
                              .out = memory.data() + static_cast<std::int64_t>(slot) * slot_bytes};
    next += lengths[slot];
    reader.submit(request);
  }
  // What is under way is waited for and counts; what only waits does not, where the time is over.
  if (is_over()) reader.cancel_all();
  has_ended.wait(lock, [&] { return free_slots.size() == lengths.size(); });
  const double seconds = seconds_since(start);
  if (!failure.empty()) throw std::system_error(EIO, std::generic_category(), failure);
  return {seconds > 0 ? static_cast<double>(num_bytes) / seconds : 0.0, reader.method() != ReadMethod::buffered};
}

}  // namespace edgert
