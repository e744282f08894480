#include "io/descriptors.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/memory.h"
#include "io/reader.h"

namespace edgert {
namespace {

// Some file systems accept the flag and refuse the read.
void check_direct_read(int descriptor, const File& file) {
  const Memory sector(static_cast<std::size_t>(kDirectAlignment));
  ssize_t got = -1;
  do got = pread(descriptor, sector.data(), static_cast<std::size_t>(kDirectAlignment), 0);
  while (got < 0 && errno == EINTR);
  if (got < 0) throw std::system_error(errno, std::generic_category(), file.path());
}

}  // namespace

Descriptors::Descriptors(std::span<const File> files, bool is_direct) {
  descriptors_.reserve(files.size());
  try {
    for (const File& file : files) {
      paths_.push_back(file.path());
      descriptors_.push_back(file.open_again(is_direct));
      if (is_direct) check_direct_read(descriptors_.back(), file);
#ifdef POSIX_FADV_RANDOM
      // Read ahead would bring in bytes that nobody drops again.
      if (!is_direct) posix_fadvise(descriptors_.back(), 0, 0, POSIX_FADV_RANDOM);
#endif
    }
  } catch (...) {
    close_all();
    throw;
  }
}

Descriptors::~Descriptors() { close_all(); }

void Descriptors::close_all() {
  for (const int descriptor : descriptors_) ::close(descriptor);
}

}  // namespace edgert
