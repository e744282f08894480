#include "io/reader.h"

#include <chrono>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "io/read_backend.h"
#include "io/read_queue.h"

namespace edgert {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

const ReaderOptions& checked(const ReaderOptions& options) {
  if (options.depth < 1 || options.depth > 1024)
    throw std::invalid_argument("depth: found " + std::to_string(options.depth) + ", expected 1 to 1024");
  if (options.chunk_bytes < kDirectAlignment || options.chunk_bytes % kDirectAlignment != 0 ||
      options.chunk_bytes > (std::int64_t{1} << 30))
    throw std::invalid_argument("chunk_bytes: found " + std::to_string(options.chunk_bytes) +
                                ", expected a multiple of " + std::to_string(kDirectAlignment) + " up to 1 GiB");
  if (options.limit_bytes_per_s < 0)
    throw std::invalid_argument("limit_bytes_per_s: found " + std::to_string(options.limit_bytes_per_s) +
                                ", expected 0 or more");
  return options;
}

std::string message_of(const ReadEnd& end, const std::string& path) {
  if (end.outcome != ReadOutcome::failed) return {};
  return path + ": " +
         (end.error == 0 ? "became shorter while it was read" : std::generic_category().message(end.error));
}

}  // namespace

std::unique_ptr<ReadBackend> make_read_backend(std::span<const File> files, const ReaderOptions& options) {
  const std::int32_t num_slots = most_requests(checked(options));
  switch (options.method) {
    case ReadMethod::uring:
      return make_uring_backend(files, num_slots);
    case ReadMethod::threads:
      return make_threads_backend(files, num_slots, true);
    case ReadMethod::buffered:
      return make_threads_backend(files, num_slots, false);
    case ReadMethod::automatic:
      break;
  }
  try {
    return make_uring_backend(files, num_slots);
  } catch (const std::system_error&) {
  }
  try {
    return make_threads_backend(files, num_slots, true);
  } catch (const std::system_error&) {
  }
  return make_threads_backend(files, num_slots, false);
}

Reader::Reader(std::span<const File> files, const ReaderOptions& options, ReadDone done)
    : Reader(options.wrap ? options.wrap(make_read_backend(files, options)) : make_read_backend(files, options),
             options, std::move(done)) {}

Reader::Reader(std::unique_ptr<ReadBackend> backend, const ReaderOptions& options, ReadDone done)
    : backend_(std::move(backend)),
      limit_(checked(options).limit_bytes_per_s),
      done_(std::move(done)),
      method_(backend_->method()) {
  queue_ = std::make_unique<ReadQueue>(most_requests(options), options.depth,
                                       limit_.chunk_bytes(options.chunk_bytes, kDirectAlignment));
  thread_ = std::thread([this] { run(); });
}

Reader::~Reader() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    queue_->cancel_all();
    wake();
  }
  thread_.join();
}

void Reader::submit(const ReadRequest& request) {
  const std::lock_guard lock(mutex_);
  queue_->add(request);
  if (is_stopping_) queue_->cancel(request.tag);
  wake();
}

void Reader::set_priority(ReadTag tag, ReadPriority priority) {
  const std::lock_guard lock(mutex_);
  queue_->set_priority(tag, priority);
}

void Reader::cancel(ReadTag tag) {
  const std::lock_guard lock(mutex_);
  queue_->cancel(tag);
  wake();
}

void Reader::cancel_all() {
  const std::lock_guard lock(mutex_);
  queue_->cancel_all();
  wake();
}

ReadMethod Reader::method() const { return method_; }

ReadCounters Reader::counters() const {
  const std::lock_guard lock(mutex_);
  ReadCounters counters = counters_;
  if (queue_->num_under_way() > 0) counters.busy_s += seconds_now() - busy_since_s_;
  return counters;
}

bool Reader::is_idle() const {
  const std::lock_guard lock(mutex_);
  return queue_->is_empty() && num_untold_ == 0;
}

void Reader::start_trace() {
  const std::lock_guard lock(mutex_);
  events_.clear();
  events_.reserve(kMaxTraceEvents);  // memory that is never touched is never taken
  is_tracing_ = true;
}

std::vector<ReadEvent> Reader::stop_trace() {
  const std::lock_guard lock(mutex_);
  is_tracing_ = false;
  return std::exchange(events_, {});
}

// REQUIRES: the mutex is held, so that the thread does not destroy the backend meanwhile.
void Reader::wake() {
  if (!std::exchange(is_woken_, true)) backend_->wake();
}

void Reader::run() {
  std::vector<ReadChunk> chunks;
  std::vector<ReadResult> results;
  std::unique_lock lock(mutex_);
  for (;;) {
    is_woken_ = false;
    const std::vector<ReadEnd> ended = queue_->take_ended();
    if (is_stopping_ && ended.empty() && queue_->is_empty()) break;
    const double wait_s = choose(chunks);
    num_untold_ = ended.size();
    lock.unlock();
    for (const ReadEnd& end : ended) {
      --num_untold_;  // first: who hears of the last one finds the reader idle
      done_(end.tag, end.outcome, message_of(end, backend_->path(end.file)));
    }
    for (const ReadChunk& chunk : chunks) backend_->begin(chunk);
    results.clear();
    backend_->wait(ended.empty() ? wait_s : 0, results);
    lock.lock();
    for (const ReadResult& result : results) account(result);
  }
  lock.unlock();
  // Here, because a ring's last requests belong to the thread that made them.
  backend_.reset();
}

// Takes what can be begun now. Returns how long the thread may wait for something else to happen; negative: for ever.
double Reader::choose(std::vector<ReadChunk>& chunks) {
  chunks.clear();
  while (queue_->can_begin()) {
    const double now_s = seconds_now();
    const double wait_s = limit_.wait_s(now_s, queue_->next_length());
    if (wait_s > 0) return wait_s;
    if (queue_->num_under_way() == 0) busy_since_s_ = now_s;
    chunks.push_back(queue_->begin(now_s));
    limit_.take(chunks.back().length);
  }
  if (!queue_->has_waiting()) limit_.rest();
  return -1;
}

void Reader::account(const ReadResult& result) {
  const double now_s = seconds_now();
  const ReadEvent event = queue_->finish(result, now_s);
  if (queue_->num_under_way() == 0) counters_.busy_s += now_s - busy_since_s_;
  ++counters_.num_reads;
  counters_.num_bytes += result.num_bytes;
  if (is_tracing_ && events_.size() < kMaxTraceEvents) events_.push_back(event);
}

}  // namespace edgert
