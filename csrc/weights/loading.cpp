#include "weights/loading.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "io/pass.h"
#include "weights/outliers.h"

namespace edgert {
namespace {

// Of reads through the page cache: of so much memory two threads seldom touch the same huge page for the first time.
constexpr std::int64_t kBufferedBytes = std::int64_t{4} << 20;
// So far ahead of its threads a load asks the system for a file: what a fast disk gives in some milliseconds.
constexpr std::int64_t kAheadBytes = std::int64_t{32} << 20;
// The ring of direct reads, with one task more, is less than a budget's reserve (RESERVE_BYTES of memory_plan.py).
constexpr std::int64_t kMaxRingBytes = std::int64_t{20} << 20;
// A tag's bits that tell the segments of a task apart.
constexpr int kSegments = 4;

std::int64_t read_bytes(const std::optional<ReaderOptions>& direct) {
  return direct ? direct->chunk_bytes : kBufferedBytes;
}

}  // namespace

Loading::Loading(std::span<const File> files, std::vector<LoadItem> items, std::uint8_t* arena, int num_threads,
                 const std::optional<ReaderOptions>& direct)
    : files_(files), items_(std::move(items)), arena_(arena), tasks_(plan_load(items_, read_bytes(direct))) {
  std::int64_t largest_bytes = 0;
  for (const LoadTask& task : tasks_) {
    total_bytes_ += task.num_bytes;
    largest_bytes = std::max(largest_bytes, task.memory_bytes);
  }
  if (direct) {
    // What can be under way, what each thread works on, and what the ring cannot give out.
    const std::int64_t read = window_bytes(direct->chunk_bytes);
    const std::int64_t ring_bytes = std::min((direct->depth + num_threads) * read, kMaxRingBytes) + largest_bytes;
    memory_ = Memory(static_cast<std::size_t>(ring_bytes));
    ring_.reset(0, ring_bytes);
    buffers_.resize(tasks_.size());
    reader_ =
        std::make_unique<Reader>(files_, *direct, [this](ReadTag tag, ReadOutcome outcome, const std::string& error) {
          read_ended(static_cast<std::size_t>(tag / kSegments), outcome, error);
        });
  }
  try {
    for (int i = 0; i < num_threads; ++i) {
      const std::lock_guard lock(mutex_);
      threads_.emplace_back([this] { work(); });
      ++num_running_;
    }
  } catch (...) {
    stop();
    throw;
  }
}

Loading::~Loading() { stop(); }

void Loading::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  has_work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  reader_.reset();  // from here on nothing writes to the ring
}

bool Loading::wait_for(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return has_ended_.wait_for(lock, time, [this] { return num_running_ == 0; });
}

void Loading::rethrow() {
  if (error_) std::rethrow_exception(error_);
}

void Loading::fail(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
    is_stopping_ = true;
  }
  has_work_.notify_all();
}

void Loading::work() {
  try {
    reader_ ? work_direct() : work_buffered();
  } catch (...) {
    fail(std::current_exception());
  }
  const std::lock_guard lock(mutex_);
  --num_running_;
  has_ended_.notify_all();
}

void Loading::work_buffered() {
  Memory scratch;  // not of malloc, which keeps what a thread has freed
  for (;;) {
    std::size_t index = 0;
    {
      const std::lock_guard lock(mutex_);
      if (is_stopping_ || next_ == tasks_.size()) return;
      index = next_++;
    }
    const LoadTask& task = tasks_[index];
    read_ahead(index);
    const bool is_straight = task.outliers_of == nullptr && std::none_of(task.ranges.begin(), task.ranges.end(),
                                                                         [](const LoadRange& r) { return r.part < 0; });
    const auto num_bytes = static_cast<std::size_t>(task.memory_bytes);
    if (!is_straight && scratch.num_bytes() < num_bytes) scratch = Memory(num_bytes, false);
    put(task, scratch.data());
    done_bytes_.fetch_add(task.num_bytes);
  }
}

// What this task is the first to want of the system.
void Loading::read_ahead(std::size_t task) const {
  constexpr std::size_t kTasks = kAheadBytes / kBufferedBytes;
  for (std::size_t i = task == 0 ? 1 : task + kTasks; i < std::min(task + kTasks + 1, tasks_.size()); ++i)
    for (const PieceSegment& s : tasks_[i].segments)
      files_[static_cast<std::size_t>(s.file)].read_ahead(s.offset, s.length);
}

void Loading::work_direct() {
  std::unique_lock lock(mutex_);
  for (;;) {
    submit_reads();
    has_work_.wait(lock, [this] { return is_stopping_ || !ready_.empty() || num_put_ == tasks_.size(); });
    if (is_stopping_ || ready_.empty()) return;
    const std::size_t index = ready_.front();
    ready_.pop_front();
    lock.unlock();
    put(tasks_[index], memory_.data() + buffers_[index].place);
    done_bytes_.fetch_add(tasks_[index].num_bytes);
    lock.lock();
    ring_.give_back(buffers_[index].place);
    if (++num_put_ == tasks_.size()) has_work_.notify_all();
  }
}

// REQUIRES: the mutex is held.
void Loading::submit_reads() {
  for (; next_ < tasks_.size(); ++next_) {
    const LoadTask& task = tasks_[next_];
    Buffer& buffer = buffers_[next_];
    buffer.place = ring_.take(task.memory_bytes);
    if (buffer.place < 0) return;
    buffer.reads_left = static_cast<std::int32_t>(task.segments.size());
    for (std::size_t i = 0; i < task.segments.size(); ++i) {
      const PieceSegment& s = task.segments[i];
      reader_->submit({next_ * kSegments + i, s.file, s.offset, s.length, memory_.data() + buffer.place + s.place,
                       ReadPriority::planned});
    }
  }
}

// On the reader's thread.
void Loading::read_ended(std::size_t task, ReadOutcome outcome, const std::string& error) {
  if (outcome == ReadOutcome::failed) fail(std::make_exception_ptr(ReadError(error)));
  if (outcome != ReadOutcome::complete) return;
  {
    const std::lock_guard lock(mutex_);
    if (--buffers_[task].reads_left > 0) return;
    ready_.push_back(task);
  }
  has_work_.notify_one();
}

// memory: where the windows of the task have been read, if the reads are direct; else room for them.
void Loading::put(const LoadTask& task, std::uint8_t* memory) const {
  for (const LoadRange& range : task.ranges) put(range, memory + range.place);
  if (task.outliers_of != nullptr) put_outliers(task, memory);
}

void Loading::put(const LoadRange& range, std::uint8_t* memory) const {
  const WeightRequest& r = *range.item->request;
  const ArenaPlaces& places = *range.item->places;
  if (range.part < 0) {
    if (!reader_) read(range.address(), memory);
    std::uint8_t* out[kMaxParts];
    for (std::size_t p = 0; p < kMaxParts; ++p) out[p] = arena_ + places.parts[p];
    return range.part == kRows ? place_rows(r, memory, range.begin, range.count, out)
                               : place_neurons(r, memory, range.begin, range.count, out);
  }
  std::uint8_t* out = arena_ + places.parts[static_cast<std::size_t>(range.part)] + range.begin;
  if (reader_)
    std::memcpy(out, memory, static_cast<std::size_t>(range.count));
  else
    read(range.address(), out);
  finish_part(r, range.part, out, range.count);
}

void Loading::put_outliers(const LoadTask& task, std::uint8_t* memory) const {
  const std::uint8_t* parts[3];
  for (std::size_t i = 0; i < 3; ++i) {
    const PieceSegment& s = task.segments[i];
    std::uint8_t* bytes = memory + s.place + window_lead(s.offset);
    if (!reader_) read({s.file, s.offset, s.length}, bytes);
    parts[i] = bytes;
  }
  const ArenaPlaces& places = *task.outliers_of->places;
  place_outliers(*task.outliers_of->request, parts[0], parts[1], parts[2],
                 reinterpret_cast<std::uint32_t*>(arena_ + places.outlier_starts),
                 reinterpret_cast<Outlier*>(arena_ + places.outliers));
}

void Loading::read(const PartAddress& address, std::uint8_t* out) const {
  files_[static_cast<std::size_t>(address.file)].read(address.offset, address.length, out);
}

}  // namespace edgert
