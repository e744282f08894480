#include "io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <system_error>

#include "base/memory.h"

namespace edgert {
namespace {

[[noreturn]] void throw_errno(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

File::File(const std::string& path) : path_(path) {
  // The caller has resolved the links; one that takes the file's place now is not followed, and a pipe does not block.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor_ < 0) throw_errno(path);
  struct stat status{};
  if (fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    throw std::system_error(EINVAL, std::generic_category(), path + ": not a regular file");
  }
  num_bytes_ = status.st_size;
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(other.descriptor_), num_bytes_(other.num_bytes_) {
  other.descriptor_ = -1;
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void File::check_range(std::int64_t offset, std::int64_t length) const {
  if (offset >= 0 && length >= 0 && offset <= num_bytes_ && length <= num_bytes_ - offset) return;
  throw std::out_of_range(path_ + ": found bytes " + std::to_string(offset) + " + " + std::to_string(length) +
                          ", expected a range inside its " + std::to_string(num_bytes_) + " bytes");
}

void File::read(std::int64_t offset, std::int64_t length, void* out) const {
  check_range(offset, length);
  auto* p = static_cast<char*>(out);
  while (length > 0) {
    const ssize_t got =
        pread(descriptor_, p, static_cast<std::size_t>(std::min<std::int64_t>(length, 1 << 30)), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_errno(path_);
    if (got == 0) throw std::system_error(EIO, std::generic_category(), path_ + ": became shorter while it was read");
    p += got;
    offset += got;
    length -= got;
  }
}

double disk_read_rate(const std::string& path, std::int64_t num_bytes, std::int64_t chunk_bytes, bool& was_direct) {
  was_direct = false;
  int descriptor = -1;
#ifdef O_DIRECT
  descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
  was_direct = descriptor >= 0;
#endif
  if (descriptor < 0) descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw_errno(path);
#ifdef F_NOCACHE
  was_direct = fcntl(descriptor, F_NOCACHE, 1) == 0;
#endif
  Memory buffer(static_cast<std::size_t>(chunk_bytes));
  std::int64_t done = 0;
  const auto start = std::chrono::steady_clock::now();
  while (done + chunk_bytes <= num_bytes) {
    const ssize_t got = pread(descriptor, buffer.data(), static_cast<std::size_t>(chunk_bytes), done);
    if (got < 0) {
      const int error = errno;
      ::close(descriptor);
      throw std::system_error(error, std::generic_category(), path);
    }
    if (got < chunk_bytes) break;
    done += got;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ::close(descriptor);
  return seconds > 0 ? static_cast<double>(done) / seconds : 0.0;
}

}  // namespace edgert
