// A disk that misbehaves, for tests.
#pragma once
#include <cstdint>
#include <memory>
#include <utility>

#include "io/read_backend.h"

namespace edgert {

// Requests to the system count from 0, in the order in which they are begun.
struct Faults {
  std::int64_t num_short = 0, short_bytes = 0;  // the first num_short give so many bytes less (but at least one)
  std::int64_t fail_at = -1;                    // this one fails with EIO
  std::int64_t stall_at = -1;                   // this one ends stall_s after it began
  double stall_s = 0;
  bool is_reversed = false;  // ends are told when nothing is under way, the last request's first
};

std::unique_ptr<ReadBackend> make_faulty_backend(std::unique_ptr<ReadBackend> inner, const Faults& faults);

// For ReaderOptions::wrap.
inline auto with_faults(const Faults& faults) {
  return [faults](std::unique_ptr<ReadBackend> inner) { return make_faulty_backend(std::move(inner), faults); };
}

}  // namespace edgert
