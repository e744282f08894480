// Memory for what comes and goes in about the same order.
#pragma once
#include <cstdint>
#include <deque>

namespace edgert {

// Ranges of [begin, end), each contiguous, given out one behind the other around the ring. A range that comes back
// early waits for those before it. Any run of ranges whose sum is at most the capacity less the largest one fits.
class Ring {
 public:
  // REQUIRES: nothing is out.
  void reset(std::int64_t begin, std::int64_t end) {
    begin_ = head_ = begin;
    end_ = end;
    taken_.clear();
  }
  bool is_empty() const { return taken_.empty(); }
  std::int64_t capacity() const { return end_ - begin_; }

  // The range's offset; -1: there is no room.
  std::int64_t take(std::int64_t num_bytes) {
    std::int64_t at = head_;
    if (taken_.empty()) {
      at = begin_;
      if (num_bytes > capacity()) return -1;
    } else if (const std::int64_t tail = taken_.front().begin; head_ > tail) {
      if (at + num_bytes > end_) {
        if (begin_ + num_bytes > tail) return -1;
        at = begin_;
      }
    } else if (at + num_bytes > tail) {
      return -1;
    }
    taken_.push_back({at, false});
    head_ = at + num_bytes;
    return at;
  }

  // REQUIRES: the last call took a range.
  void undo_take() {
    head_ = taken_.back().begin;
    taken_.pop_back();
  }

  // REQUIRES: `offset` was given out and has not come back.
  void give_back(std::int64_t offset) {
    for (Range& range : taken_)
      if (range.begin == offset && !range.is_back) {
        range.is_back = true;
        break;
      }
    while (!taken_.empty() && taken_.front().is_back) taken_.pop_front();
  }

 private:
  struct Range {
    std::int64_t begin;
    bool is_back;
  };
  std::int64_t begin_ = 0, end_ = 0, head_ = 0;
  std::deque<Range> taken_;
};

}  // namespace edgert
