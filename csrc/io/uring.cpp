// Reads with io_uring, past the page cache: one thread keeps the disk's queue full.
#include <cerrno>
#include <system_error>

#include "io/read_backend.h"

#if defined(__linux__) && __has_include(<linux/io_uring.h>)
#include <linux/io_uring.h>
#endif

#ifdef IORING_FEAT_EXT_ARG  // Linux 5.11: a wait with a timeout
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "io/descriptors.h"

namespace edgert {
namespace {

[[noreturn]] void throw_errno(int error) { throw std::system_error(error, std::generic_category(), "io_uring"); }

unsigned load(const unsigned* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
void store(unsigned* p, unsigned value) { __atomic_store_n(p, value, __ATOMIC_RELEASE); }

// The queues that we share with the kernel. One thread uses them.
class Ring {
 public:
  // Throws std::system_error if the kernel has no such rings, or refuses them.
  explicit Ring(unsigned num_entries) {
    io_uring_params params{};
    descriptor_ = static_cast<int>(syscall(__NR_io_uring_setup, num_entries, &params));
    if (descriptor_ < 0) throw_errno(errno);
    try {
      if ((params.features & IORING_FEAT_EXT_ARG) == 0) throw_errno(ENOSYS);
      // A filter of system calls may allow the one and refuse the other.
      if (syscall(__NR_io_uring_enter, descriptor_, 0, 0, 0, nullptr, 0) < 0) throw_errno(errno);
      queues_bytes_ = std::max(params.sq_off.array + params.sq_entries * sizeof(unsigned),
                               params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe));
      queues_ = map(queues_bytes_, IORING_OFF_SQ_RING);
      entries_bytes_ = params.sq_entries * sizeof(io_uring_sqe);
      entries_ = reinterpret_cast<io_uring_sqe*>(map(entries_bytes_, IORING_OFF_SQES));
    } catch (...) {
      close_all();
      throw;
    }
    sq_head_ = at(params.sq_off.head);
    sq_tail_ = at(params.sq_off.tail);
    sq_mask_ = *at(params.sq_off.ring_mask);
    cq_head_ = at(params.cq_off.head);
    cq_tail_ = at(params.cq_off.tail);
    cq_mask_ = *at(params.cq_off.ring_mask);
    results_ = reinterpret_cast<io_uring_cqe*>(queues_ + params.cq_off.cqes);
    for (unsigned i = 0; i < params.sq_entries; ++i) at(params.sq_off.array)[i] = i;
  }
  ~Ring() { close_all(); }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // REQUIRES: fewer entries than the ring has are waiting to be submitted.
  void add_read(int descriptor, void* out, unsigned num_bytes, std::uint64_t offset, std::uint64_t id) {
    const unsigned tail = *sq_tail_;
    io_uring_sqe& entry = entries_[tail & sq_mask_];
    std::memset(&entry, 0, sizeof entry);
    entry.opcode = IORING_OP_READ;
    entry.fd = descriptor;
    entry.addr = reinterpret_cast<std::uintptr_t>(out);
    entry.len = num_bytes;
    entry.off = offset;
    entry.user_data = id;
    store(sq_tail_, tail + 1);
  }

  // Submits what was added, and waits for a result if there is none. Returns 0 or errno.
  int submit_and_wait(double timeout_s) {
    const unsigned num_added = *sq_tail_ - load(sq_head_);
    const bool has_result = load(cq_tail_) != *cq_head_;
    if (has_result && num_added == 0) return 0;
    __kernel_timespec timeout{};
    timeout.tv_sec = static_cast<std::int64_t>(std::max(timeout_s, 0.0));
    timeout.tv_nsec = static_cast<std::int64_t>((std::max(timeout_s, 0.0) - static_cast<double>(timeout.tv_sec)) * 1e9);
    io_uring_getevents_arg argument{};
    if (timeout_s >= 0) argument.ts = reinterpret_cast<std::uintptr_t>(&timeout);
    const long rc = syscall(__NR_io_uring_enter, descriptor_, num_added, has_result ? 0 : 1,
                            IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &argument, sizeof argument);
    return rc < 0 ? errno : 0;
  }

  template <typename F>
  void take_results(F&& take) {
    unsigned head = *cq_head_;
    for (const unsigned tail = load(cq_tail_); head != tail; ++head) {
      const io_uring_cqe& result = results_[head & cq_mask_];
      take(result.user_data, result.res);
    }
    store(cq_head_, head);
  }

  // Takes back what the kernel has not taken.
  template <typename F>
  void take_added(F&& take) {
    const unsigned head = load(sq_head_);
    for (unsigned i = head; i != *sq_tail_; ++i) take(entries_[i & sq_mask_].user_data);
    store(sq_tail_, head);
  }

 private:
  unsigned* at(std::size_t offset) const { return reinterpret_cast<unsigned*>(queues_ + offset); }

  std::uint8_t* map(std::size_t num_bytes, std::uint64_t what) const {
    void* p = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor_,
                   static_cast<off_t>(what));
    if (p == MAP_FAILED) throw_errno(errno);
    return static_cast<std::uint8_t*>(p);
  }

  void close_all() {
    if (entries_ != nullptr) munmap(entries_, entries_bytes_);
    if (queues_ != nullptr) munmap(queues_, queues_bytes_);
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  int descriptor_ = -1;
  std::uint8_t* queues_ = nullptr;
  io_uring_sqe* entries_ = nullptr;
  io_uring_cqe* results_ = nullptr;
  std::size_t queues_bytes_ = 0, entries_bytes_ = 0;
  unsigned *sq_head_ = nullptr, *sq_tail_ = nullptr, *cq_head_ = nullptr, *cq_tail_ = nullptr;
  unsigned sq_mask_ = 0, cq_mask_ = 0;
};

class EventDescriptor {
 public:
  EventDescriptor() : descriptor_(eventfd(0, EFD_CLOEXEC)) {
    if (descriptor_ < 0) throw_errno(errno);
  }
  ~EventDescriptor() { ::close(descriptor_); }
  EventDescriptor(const EventDescriptor&) = delete;
  EventDescriptor& operator=(const EventDescriptor&) = delete;
  int get() const { return descriptor_; }

 private:
  const int descriptor_;
};

class UringBackend final : public ReadBackend {
 public:
  UringBackend(std::span<const File> files, std::int32_t num_slots)
      : descriptors_(files, true), ring_(static_cast<unsigned>(num_slots) + 1) {}

  ~UringBackend() override {
    // The kernel is not to write to the count after it is gone.
    wake();
    std::vector<ReadResult> results;
    for (int i = 0; has_wake_read_ && i < 100; ++i) collect(0.01, results);
  }

  ReadMethod method() const override { return ReadMethod::uring; }
  const std::string& path(std::int32_t file) const override { return descriptors_.path(file); }

  void begin(const ReadChunk& chunk) override {
    ring_.add_read(descriptors_[chunk.file], chunk.out, static_cast<unsigned>(chunk.length),
                   static_cast<std::uint64_t>(chunk.offset), static_cast<std::uint64_t>(chunk.slot));
  }

  void wait(double timeout_s, std::vector<ReadResult>& results) override {
    if (!has_wake_read_) ring_.add_read(event_.get(), &num_wakes_, sizeof num_wakes_, 0, kWake);
    has_wake_read_ = true;
    collect(timeout_s, results);
  }

  void wake() override {
    const std::uint64_t one = 1;
    // Fails only if the count is full, and then a wake is on its way.
    [[maybe_unused]] const ssize_t written = ::write(event_.get(), &one, sizeof one);
  }

 private:
  static constexpr std::uint64_t kWake = ~std::uint64_t{0};

  void collect(double timeout_s, std::vector<ReadResult>& results) {
    const int error = ring_.submit_and_wait(timeout_s);
    if (error != 0 && error != ETIME && error != EINTR) refuse(error, results);
    ring_.take_results([&](std::uint64_t id, std::int32_t result) {
      if (id == kWake) {
        has_wake_read_ = false;
      } else {
        results.push_back({static_cast<std::int32_t>(id), result < 0 ? -result : 0, std::max(result, 0)});
      }
    });
  }

  void refuse(int error, std::vector<ReadResult>& results) {
    // Short of memory: what was added stays, for the next wait. Otherwise it never gets in.
    if (error != EAGAIN && error != EBUSY) {
      ring_.take_added([&](std::uint64_t id) {
        if (id == kWake)
          has_wake_read_ = false;
        else
          results.push_back({static_cast<std::int32_t>(id), error, 0});
      });
    }
    usleep(1000);
  }

  const Descriptors descriptors_;
  const EventDescriptor event_;
  std::uint64_t num_wakes_ = 0;  // the kernel writes here while has_wake_read_
  bool has_wake_read_ = false;
  Ring ring_;
};

}  // namespace

std::unique_ptr<ReadBackend> make_uring_backend(std::span<const File> files, std::int32_t num_slots) {
  return std::make_unique<UringBackend>(files, num_slots);
}

}  // namespace edgert

#else

namespace edgert {

std::unique_ptr<ReadBackend> make_uring_backend(std::span<const File>, std::int32_t) {
  throw std::system_error(ENOSYS, std::generic_category(), "io_uring");
}

}  // namespace edgert

#endif
