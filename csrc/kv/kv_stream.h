// Pages of keys and values that lie on the disk, layer by layer: read in the order of their use, chunk by chunk, ahead
// of it.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/memory.h"
#include "io/pass.h"
#include "io/reader.h"
#include "kv/kv_store.h"

namespace edgert {

// What the attention of one layer reads of a sequence: of its pages before end_page those that are on disk, without
// [skip_begin, skip_end), which lie outside of a window.
struct KVRead {
  SequenceId sequence = 0;
  std::int32_t layer = 0;
  std::int32_t end_page = 0;
  std::int32_t skip_begin = 0, skip_end = 0;
};

// Pages of one read that are in memory together.
struct KVChunk {
  std::vector<std::int32_t> pages;  // of the sequence, ascending
  bool is_last = false;             // of its read

  // REQUIRES: `page` is one of them, and the chunk has arrived.
  const std::uint8_t* record(std::int32_t page) const;

 private:
  friend class KVStream;
  std::uint8_t* memory = nullptr;
  std::int64_t record_bytes = 0;
  std::int32_t reads_left = 0;
};

struct KVStreamCounters {
  ReadCounters reads;
  double waited_s = 0;  // of the thread that runs the passes
};

// begin_pass, then each chunk with `next` and `release`, end_pass: on one thread. While a pass runs, no page of the
// store moves.
class KVStream {
 public:
  // Throws std::invalid_argument if ring_bytes do not hold two records, std::bad_alloc, std::system_error.
  KVStream(const KVStore& store, const File& file, std::int64_t ring_bytes, const ReaderOptions& options);
  ~KVStream();

  bool has_pages(const KVRead& read) const { return next_page(read, 0) < read.end_page; }
  // reads: at least one, and each has pages; they stay until the pass ends. should_stop: asked now and then while the
  // caller waits.
  void begin_pass(std::span<const KVRead> reads, std::function<bool()> should_stop);
  // The next chunk in the order of the reads. Null: the pass was stopped, or a read failed.
  const KVChunk* next();
  // The chunk that `next` gave is not needed any more.
  void release();
  // Ends what is still being read. Throws ReadError if a read failed; returns false if the pass was stopped.
  bool end_pass();
  // From any thread: ends the reads of the pass that runs, and its waits.
  void stop();
  // A pass has begun and not ended.
  bool is_running() const { return !reads_.empty(); }
  bool is_stopped() const { return pass_.is_stopped(); }
  KVStreamCounters counters() const;
  // Between passes: from now on reads, and waits of the thread that runs the passes, are kept.
  void start_trace();
  std::pair<std::vector<WaitEvent>, std::vector<ReadEvent>> stop_trace();

 private:
  std::int32_t next_page(const KVRead& read, std::int32_t page) const;
  void read_ahead();
  void submit(std::size_t index, const KVRead& read);
  void read_ended(ReadTag tag, ReadOutcome outcome, const std::string& error);

  const KVStore& store_;
  Memory ring_;
  std::vector<KVChunk> chunks_;  // one a part of the ring
  std::int64_t chunk_bytes_ = 0;

  Pass pass_;  // its lock guards all below
  std::span<const KVRead> reads_;
  std::size_t cursor_ = 0;                          // the read that is asked for next
  std::int32_t cursor_page_ = 0;                    // and where it goes on
  std::uint64_t num_asked_ = 0, num_released_ = 0;  // chunks, since the stream was made
  std::int32_t num_reading_ = 0;
  double waited_s_ = 0;
  std::unique_ptr<Reader> reader_;  // last: its thread ends before what it writes to
};

}  // namespace edgert
