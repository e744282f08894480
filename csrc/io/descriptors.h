// The descriptors that a backend reads from: a second one of each file, so that the first keeps its own flags.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/file.h"

namespace edgert {

class Descriptors {
 public:
  // Throws std::system_error, with the path, if one cannot be opened; if `is_direct`, also if it cannot be read past
  // the page cache.
  Descriptors(std::span<const File> files, bool is_direct);
  ~Descriptors();
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

  int operator[](std::int32_t file) const { return descriptors_[static_cast<std::size_t>(file)]; }
  const std::string& path(std::int32_t file) const { return paths_[static_cast<std::size_t>(file)]; }

 private:
  void close_all();

  std::vector<int> descriptors_;
  std::vector<std::string> paths_;
};

}  // namespace edgert
