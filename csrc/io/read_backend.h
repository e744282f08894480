// How the reader's requests reach the system: a ring, threads, or a test double.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/reader.h"

namespace edgert {

// One request to the system. Offset, length and `out` are multiples of kDirectAlignment; the range may end past the
// file's end, and the read is short then.
struct ReadChunk {
  std::int32_t slot = 0;  // 0 .. num_slots - 1; not used twice at a time
  std::int32_t file = 0;
  std::int64_t offset = 0, length = 0;
  std::uint8_t* out = nullptr;
};

struct ReadResult {
  std::int32_t slot = 0;
  std::int32_t error = 0;  // errno; 0: none
  std::int64_t num_bytes = 0;
};

// One thread calls begin and wait and destroys it; any thread calls the others.
class ReadBackend {
 public:
  virtual ~ReadBackend() = default;
  virtual ReadMethod method() const = 0;
  virtual const std::string& path(std::int32_t file) const = 0;

  // The system need not have it before the next wait. REQUIRES: fewer than `num_slots` are under way.
  virtual void begin(const ReadChunk& chunk) = 0;
  // Adds what has ended to `results`. If that is nothing, waits until something has, or wake was called since the last
  // wait, or the time is over (negative: never). May also return for no reason.
  virtual void wait(double timeout_s, std::vector<ReadResult>& results) = 0;
  virtual void wake() = 0;
};

// Each throws std::system_error if the system refuses it for one of the files.
std::unique_ptr<ReadBackend> make_uring_backend(std::span<const File> files, std::int32_t num_slots);
std::unique_ptr<ReadBackend> make_threads_backend(std::span<const File> files, std::int32_t num_slots, bool is_direct);
// The one that options.method names.
std::unique_ptr<ReadBackend> make_read_backend(std::span<const File> files, const ReaderOptions& options);

}  // namespace edgert
