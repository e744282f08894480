// How fast a file can be read, in the way that weights are read.
#pragma once
#include <cstdint>

#include "io/file.h"
#include "io/reader.h"

namespace edgert {

struct ReadRate {
  double bytes_per_s = 0;
  bool is_direct = false;  // past the page cache
};

// Reads from `offset` on in requests of options.chunk_bytes, options.depth at a time, until `length` bytes have been
// read, or `most_s` seconds are over and one request has ended. REQUIRES: `offset` is a multiple of kDirectAlignment.
// Throws as File::check_range and Reader, std::bad_alloc, and std::system_error on a failed read.
ReadRate measure_read_rate(const File& file, std::int64_t offset, std::int64_t length, double most_s,
                           const ReaderOptions& options);

}  // namespace edgert
