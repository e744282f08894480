#include "io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <system_error>

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

// A descriptor with flags of its own, or -1 and errno.
int File::open_same(int flags) const {
#ifdef __linux__
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor_);
  const int linked = ::open(link.c_str(), O_RDONLY | O_CLOEXEC | flags);
  if (linked >= 0) return linked;
#endif
  const int named = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags);
  if (named < 0) return -1;
  struct stat ours{}, theirs{};
  const bool is_same = fstat(descriptor_, &ours) == 0 && fstat(named, &theirs) == 0 && ours.st_dev == theirs.st_dev &&
                       ours.st_ino == theirs.st_ino;
  // A read that would have to wait is not to fail instead.
  if (is_same && fcntl(named, F_SETFL, flags) == 0) return named;
  ::close(named);
  errno = ESTALE;
  return -1;
}

int File::open_again(bool is_direct) const {
  if (!is_direct) {
    const int descriptor = open_same(0);
    // One that shares its flags with ours is better than none.
    const int used = descriptor >= 0 ? descriptor : fcntl(descriptor_, F_DUPFD_CLOEXEC, 0);
    if (used < 0) throw_errno(path_);
    return used;
  }
#if defined(O_DIRECT)
  const int descriptor = open_same(O_DIRECT);
  if (descriptor < 0) throw_errno(path_);
  return descriptor;
#elif defined(F_NOCACHE)
  const int descriptor = open_same(0);
  if (descriptor < 0) throw_errno(path_);
  if (fcntl(descriptor, F_NOCACHE, 1) == 0) return descriptor;
  const int error = errno;
  ::close(descriptor);
  errno = error;
  throw_errno(path_);
#else
  errno = ENOTSUP;
  throw_errno(path_);
#endif
}

void File::read_ahead(std::int64_t offset, std::int64_t length) const {
#ifdef POSIX_FADV_WILLNEED
  const std::int64_t end = offset + length;
#ifdef RWF_NOWAIT
  // A range whose last byte is in the page cache is there as a whole, most likely; looking at every page takes longer.
  char byte = 0;
  const iovec last{&byte, 1};
  if (length > 0 && preadv2(descriptor_, &last, 1, end - 1, RWF_NOWAIT) == 1) return;
#endif
  // Of one call Linux reads no more than a device's own read-ahead, which is 128 KiB where nobody set it.
  constexpr std::int64_t kMost = std::int64_t{128} << 10;
  for (; offset < end; offset += kMost)
    posix_fadvise(descriptor_, offset, std::min(kMost, end - offset), POSIX_FADV_WILLNEED);
#else
  static_cast<void>(offset), static_cast<void>(length);
#endif
}

void File::drop_cached(std::int64_t offset, std::int64_t length) const {
#ifdef POSIX_FADV_DONTNEED
  posix_fadvise(descriptor_, offset, length, POSIX_FADV_DONTNEED);
#else
  static_cast<void>(offset), static_cast<void>(length);
#endif
}

}  // namespace edgert
