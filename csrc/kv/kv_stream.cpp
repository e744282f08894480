#include "kv/kv_stream.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace edgert {
namespace {

// Parts of the ring: one is computed with while the others are read.
constexpr std::int64_t kMostChunks = 4;
constexpr int kRunBits = 32;  // of a read's tag: which run of neighbouring records of a chunk

}  // namespace

const std::uint8_t* KVChunk::record(std::int32_t page) const {
  const auto place = std::lower_bound(pages.begin(), pages.end(), page);
  return memory + (place - pages.begin()) * record_bytes;
}

KVStream::KVStream(const KVStore& store, const File& file, std::int64_t ring_bytes, const ReaderOptions& options)
    : store_(store), pass_([this] { reader_->cancel_all(); }) {
  std::int64_t largest = 0, smallest = ring_bytes;
  for (std::int32_t layer = 0; layer < store.num_layers(); ++layer) {
    largest = std::max(largest, store.record_bytes(layer));
    smallest = std::min(smallest, store.record_bytes(layer));
  }
  if (ring_bytes < 2 * largest)
    throw std::invalid_argument("KV ring: found " + std::to_string(ring_bytes) + " bytes, expected at least " +
                                std::to_string(2 * largest));
  const std::int64_t num_chunks = std::min(kMostChunks, ring_bytes / largest);
  chunk_bytes_ = ring_bytes / num_chunks / kDirectAlignment * kDirectAlignment;
  ring_ = Memory(static_cast<std::size_t>(num_chunks * chunk_bytes_));
  chunks_.resize(static_cast<std::size_t>(num_chunks));
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    chunks_[i].memory = ring_.data() + static_cast<std::int64_t>(i) * chunk_bytes_;
    chunks_[i].pages.reserve(static_cast<std::size_t>(chunk_bytes_ / std::max<std::int64_t>(smallest, 1)));
  }
  reader_ = std::make_unique<Reader>(
      std::span<const File>(&file, 1), options,
      [this](ReadTag tag, ReadOutcome outcome, const std::string& error) { read_ended(tag, outcome, error); });
}

KVStream::~KVStream() {
  stop();
  reader_.reset();
}

// The first page from `page` on that the read needs and that is on disk; end_page: there is none.
std::int32_t KVStream::next_page(const KVRead& read, std::int32_t page) const {
  for (; page < read.end_page; ++page) {
    if (page >= read.skip_begin && page < read.skip_end)
      page = read.skip_end - 1;
    else if (store_.is_on_disk(read.sequence, page))
      break;
  }
  return std::min(page, read.end_page);
}

void KVStream::begin_pass(std::span<const KVRead> reads, std::function<bool()> should_stop) {
  const std::unique_lock<std::mutex> lock = pass_.lock();
  reads_ = reads;
  cursor_ = 0;
  cursor_page_ = next_page(reads[0], 0);
  pass_.begin(std::move(should_stop));
  read_ahead();
}

// Asks for chunks until the ring is full, or the pass has no more.
void KVStream::read_ahead() {
  while (cursor_ < reads_.size() && num_asked_ - num_released_ < chunks_.size() && !pass_.is_stopped())
    submit(static_cast<std::size_t>(num_asked_++ % chunks_.size()), reads_[cursor_]);
}

void KVStream::submit(std::size_t index, const KVRead& read) {
  KVChunk& chunk = chunks_[index];
  chunk.record_bytes = store_.record_bytes(read.layer);
  chunk.pages.clear();
  const auto most = static_cast<std::size_t>(chunk_bytes_ / chunk.record_bytes);
  while (cursor_page_ < read.end_page && chunk.pages.size() < most) {
    chunk.pages.push_back(cursor_page_);
    cursor_page_ = next_page(read, cursor_page_ + 1);
  }
  chunk.is_last = cursor_page_ == read.end_page;
  if (chunk.is_last && ++cursor_ < reads_.size()) cursor_page_ = next_page(reads_[cursor_], 0);
  // Neighbours in the file are one read.
  const auto offset = [&](std::size_t i) { return store_.record_offset(read.sequence, read.layer, chunk.pages[i]); };
  for (std::size_t begin = 0, end; begin < chunk.pages.size(); begin = end) {
    const std::int64_t first = offset(begin);
    for (end = begin + 1; end < chunk.pages.size(); ++end)
      if (offset(end) != first + static_cast<std::int64_t>(end - begin) * chunk.record_bytes) break;
    ++chunk.reads_left;
    ++num_reading_;
    reader_->submit({.tag = static_cast<ReadTag>(index) << kRunBits | begin,
                     .file = 0,
                     .offset = first,
                     .length = static_cast<std::int64_t>(end - begin) * chunk.record_bytes,
                     .out = chunk.memory + static_cast<std::int64_t>(begin) * chunk.record_bytes,
                     .priority = ReadPriority::planned});
  }
}

void KVStream::read_ended(ReadTag tag, ReadOutcome outcome, const std::string& error) {
  const std::unique_lock<std::mutex> lock = pass_.lock();
  if (outcome == ReadOutcome::failed) pass_.fail("keys and values: " + error);
  --chunks_[static_cast<std::size_t>(tag >> kRunBits)].reads_left;
  --num_reading_;
  pass_.ring();
}

const KVChunk* KVStream::next() {
  pass_.poll();
  std::unique_lock<std::mutex> lock = pass_.lock();
  const KVChunk& chunk = chunks_[static_cast<std::size_t>(num_released_ % chunks_.size())];
  if (pass_.is_stopped()) return nullptr;
  if (chunk.reads_left > 0) {
    const auto start = std::chrono::steady_clock::now();
    pass_.wait(lock, [&] { return chunk.reads_left == 0; }, [] { return false; });
    waited_s_ += pass_.waited(-1, start);
  }
  return pass_.is_stopped() ? nullptr : &chunk;
}

void KVStream::release() {
  const std::unique_lock<std::mutex> lock = pass_.lock();
  ++num_released_;
  read_ahead();
}

bool KVStream::end_pass() {
  std::unique_lock<std::mutex> lock = pass_.lock();
  pass_.end();
  reader_->cancel_all();
  pass_.settle(lock, [this] { return num_reading_ == 0; });
  num_released_ = num_asked_;
  reads_ = {};
  return pass_.reset();
}

void KVStream::stop() {
  const std::unique_lock<std::mutex> lock = pass_.lock();
  pass_.stop();
}

KVStreamCounters KVStream::counters() const {
  const std::unique_lock<std::mutex> lock = pass_.lock();
  return {reader_->counters(), waited_s_};
}

void KVStream::start_trace() {
  const std::unique_lock<std::mutex> lock = pass_.lock();
  pass_.start_trace();
  reader_->start_trace();
}

std::pair<std::vector<WaitEvent>, std::vector<ReadEvent>> KVStream::stop_trace() {
  const std::unique_lock<std::mutex> lock = pass_.lock();
  return {pass_.stop_trace(), reader_->stop_trace()};
}

}  // namespace edgert
