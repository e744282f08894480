// A temporary file that has no name any more: written place by place, read back, and gone with the process.
#pragma once
#include <cstdint>
#include <string>

#include "io/file.h"

namespace edgert {

// Writes pass the page cache by where the system allows it; elsewhere what was written is dropped from it.
// Offsets, lengths and memory are multiples of kDirectAlignment (io/reader.h).
class SpillFile {
 public:
  // Of num_bytes that take room on the disk only as they are written. Throws std::system_error, with the folder.
  SpillFile(const std::string& folder, std::int64_t num_bytes);

  // Throws std::system_error; the place then holds anything.
  void write(std::int64_t offset, std::int64_t length, const std::uint8_t* bytes);
  // To be read from.
  const File& file() const { return file_; }

 private:
  // The descriptor is the file's.
  SpillFile(const std::string& name, int descriptor, std::int64_t num_bytes);

  int descriptor_;
  File file_;
  bool is_direct_;
};

}  // namespace edgert
