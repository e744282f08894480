#include "base/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <new>
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace edgert {
namespace {
constexpr std::size_t kHugePage = std::size_t{2} << 20;
}

Memory::Memory(std::size_t num_bytes, bool with_huge_pages) {
  if (num_bytes == 0) return;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t used = (num_bytes + page - 1) / page * page;
  // Room to align to a huge page: a mapping that begins between two of them gets none at its ends.
  const bool is_huge = with_huge_pages && num_bytes >= kHugePage;
  const std::size_t slack = is_huge ? kHugePage : 0;
  void* p = mmap(nullptr, used + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  auto* begin = static_cast<std::uint8_t*>(p);
#ifdef MADV_NOHUGEPAGE
  if (!is_huge) madvise(p, used, MADV_NOHUGEPAGE);
#endif
  if (is_huge) {
    const std::size_t head = (kHugePage - reinterpret_cast<std::uintptr_t>(begin) % kHugePage) % kHugePage;
    if (head != 0) munmap(begin, head);
    begin += head;
    if (slack > head) munmap(begin + used, slack - head);
#ifdef MADV_HUGEPAGE
    madvise(begin, used, MADV_HUGEPAGE);
#endif
  }
  data_ = begin;
  num_bytes_ = used;
}

void Memory::give_back(std::size_t begin, std::size_t end) const {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  begin = (begin + page - 1) / page * page;
  end = end / page * page;
#ifdef MADV_DONTNEED
  if (begin < end) madvise(data_ + begin, end - begin, MADV_DONTNEED);
#endif
}

void give_back_freed() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

Memory::~Memory() {
  if (data_ != nullptr) munmap(data_, num_bytes_);
}

}  // namespace edgert
