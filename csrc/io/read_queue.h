// Which part of which read is asked for next, and when a read has ended. Not thread-safe; knows no clock and no disk.
#pragma once
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "io/read_backend.h"

namespace edgert {

struct ReadEnd {
  ReadTag tag = 0;
  ReadOutcome outcome = ReadOutcome::complete;
  std::int32_t file = 0;
  std::int32_t error = 0;  // of a failed read: errno, or 0 if the file was too short
};

class ReadQueue {
 public:
  // most_requests are under way at a time, of depth * chunk_bytes together.
  ReadQueue(std::int32_t most_requests, std::int32_t depth, std::int64_t chunk_bytes);

  // Throws std::invalid_argument if a read of that tag is under way.
  void add(const ReadRequest& request);
  void set_priority(ReadTag tag, ReadPriority priority);
  void cancel(ReadTag tag);
  void cancel_all();

  bool has_waiting() const { return !waiting_.empty(); }
  bool can_begin() const {
    return has_waiting() && !free_slots_.empty() && bytes_under_way_ + next_length() <= most_bytes_;
  }
  std::int32_t num_under_way() const { return static_cast<std::int32_t>(slots_.size() - free_slots_.size()); }
  bool is_empty() const { return reads_.empty() && ended_.empty(); }

  // Bytes of the most urgent chunk. REQUIRES: has_waiting().
  std::int64_t next_length() const;
  // That chunk, which is under way from now on. REQUIRES: can_begin().
  ReadChunk begin(double now_s);
  // Takes back a chunk's slot and says what the trace tells of it.
  ReadEvent finish(const ReadResult& result, double now_s);
  std::vector<ReadEnd> take_ended() { return std::exchange(ended_, {}); }

 private:
  struct Piece {  // of a window that has been asked for and did not arrive
    std::int64_t offset, length;
    std::int32_t num_tries;  // that brought nothing
  };
  struct Read {
    ReadRequest request;
    std::uint64_t order;
    std::int64_t next, end;    // of the window: what has not been begun yet
    std::int64_t chunk_bytes;  // chunks of equal length, so that none is a few sectors
    std::vector<Piece> rests;  // are asked for before what follows
    std::int32_t num_under_way = 0;
    std::int32_t error = 0;
    bool is_failed = false, is_cancelled = false;
  };
  struct Slot {
    Read* read;
    Piece piece;
    double begin_s;
    ReadPriority priority;
  };
  using Key = std::pair<ReadPriority, std::uint64_t>;

  static Key key(const Read& read) { return {read.request.priority, read.order}; }
  void cancel(Read& read);
  void take_result(Read& read, const Piece& piece, const ReadResult& result);
  void fail(Read& read, std::int32_t error);
  // REQUIRES: the caller does not use the read afterwards.
  void end_if_ended(Read& read);

  const std::int64_t chunk_bytes_, most_bytes_;
  std::int64_t bytes_under_way_ = 0;
  std::uint64_t num_added_ = 0;
  std::unordered_map<ReadTag, Read> reads_;
  std::map<Key, Read*> waiting_;  // reads of which something is still to be begun
  std::vector<Slot> slots_;
  std::vector<std::int32_t> free_slots_;
  std::vector<ReadEnd> ended_;
};

}  // namespace edgert
