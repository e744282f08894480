#include "io/spill_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "base/memory.h"
#include "io/reader.h"

namespace edgert {
namespace {

[[noreturn]] void throw_errno(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// Open, of that size, and without a name.
int open_unnamed(const std::string& folder, std::int64_t num_bytes) {
  std::string path = folder + "/edgert-XXXXXX";
  const int descriptor = ::mkostemp(path.data(), O_CLOEXEC);
  if (descriptor < 0) throw_errno(folder);
  if (::unlink(path.c_str()) == 0 && ::ftruncate(descriptor, num_bytes) == 0) return descriptor;
  const int error = errno;
  ::close(descriptor);
  errno = error;
  throw_errno(folder);
}

// Whether writes now pass the page cache by. Some file systems accept the flag and refuse the write.
bool make_direct(int descriptor) {
#if defined(O_DIRECT)
  if (fcntl(descriptor, F_SETFL, O_DIRECT) != 0) return false;
  const Memory sector(static_cast<std::size_t>(kDirectAlignment));
  if (pwrite(descriptor, sector.data(), sector.num_bytes(), 0) >= 0 || errno != EINVAL) return true;
  fcntl(descriptor, F_SETFL, 0);
  return false;
#elif defined(F_NOCACHE)
  return fcntl(descriptor, F_NOCACHE, 1) == 0;
#else
  static_cast<void>(descriptor);
  return false;
#endif
}

}  // namespace

SpillFile::SpillFile(const std::string& folder, std::int64_t num_bytes)
    : SpillFile(folder, open_unnamed(folder, num_bytes), num_bytes) {}

SpillFile::SpillFile(const std::string& name, int descriptor, std::int64_t num_bytes)
    : descriptor_(descriptor), file_(name, descriptor, num_bytes), is_direct_(make_direct(descriptor)) {}

void SpillFile::write(std::int64_t offset, std::int64_t length, const std::uint8_t* bytes) {
  file_.check_range(offset, length);
  const std::int64_t begin = offset, num_bytes = length;
  while (length > 0) {
    const ssize_t put = pwrite(descriptor_, bytes, static_cast<std::size_t>(length), offset);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw_errno(file_.path());
    if (put == 0) throw std::system_error(EIO, std::generic_category(), file_.path());
    // The rest of a write that a full disk cut short need not be aligned: it is written again.
    const std::int64_t whole = put / kDirectAlignment * kDirectAlignment;
    if (whole == 0) throw std::system_error(ENOSPC, std::generic_category(), file_.path());
    bytes += whole;
    offset += whole;
    length -= whole;
  }
  if (is_direct_) return;
#ifdef POSIX_FADV_DONTNEED
  // Only what has reached the disk can be dropped.
  if (fdatasync(descriptor_) != 0) throw_errno(file_.path());
#endif
  file_.drop_cached(begin, num_bytes);
}

}  // namespace edgert
