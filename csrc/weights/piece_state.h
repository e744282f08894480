// How far a piece is: on disk, being read, resident, prepared.
#pragma once
#include <atomic>
#include <cstdint>
#include <vector>

#include "io/reader.h"
#include "weights/piece.h"

namespace edgert {

enum class Residence : std::uint8_t { absent, reading, resident };

// Tags of a piece's reads: its number, then the segment's.
inline constexpr int kSegmentBits = 8;
inline ReadTag segment_tag(ReadTag piece, std::size_t segment) { return (piece << kSegmentBits) | segment; }

// Changed under the lock of the pass, but for what says otherwise.
class PieceState {
 public:
  std::atomic<Residence> residence{Residence::absent};  // may be read without the lock
  std::uint8_t* memory = nullptr;                       // where the piece lies; while it is not absent
  std::uint8_t* raw = nullptr;                          // where its rows lie until they are packed

  // Asks for all segments. REQUIRES: memory, and raw where the piece is packed, are set.
  void read(Reader& reader, const Piece& piece, ReadTag number, ReadPriority priority) {
    segments_left_ = static_cast<std::int32_t>(piece.segments.size());
    has_failed_ = false;
    std::int32_t strips = 0;
    for (const PieceMatrix& m : piece.matrices) strips += m.num_strips;
    is_prepared_.assign(piece.needs_preparing ? static_cast<std::size_t>(strips) : 0, 0);
    unprepared_.store(static_cast<std::int32_t>(is_prepared_.size()));
    residence.store(Residence::reading);
    std::uint8_t* out = piece.is_packed() ? raw : memory;
    for (std::size_t i = 0; i < piece.segments.size(); ++i) {
      const PieceSegment& s = piece.segments[i];
      reader.submit({segment_tag(number, i), s.file, s.offset, s.length, out + s.place, priority});
    }
  }
  // One of them has ended. Returns true when all have.
  bool ended(ReadOutcome outcome) {
    has_failed_ |= outcome != ReadOutcome::complete;
    return --segments_left_ == 0;
  }
  bool has_failed() const { return has_failed_; }

  bool is_prepared() const { return unprepared_.load(std::memory_order_acquire) == 0; }
  // Prepares strips [begin, end) of a matrix of the resident piece, those that are not yet. No lock: a strip is asked
  // for by one thread at a time. Returns true if these were the last of the piece. Throws as prepare_strips.
  bool prepare(const Piece& piece, std::size_t matrix, std::int32_t begin, std::int32_t end) {
    const PieceMatrix& m = piece.matrices[matrix];
    std::size_t before = 0;
    for (std::size_t i = 0; i < matrix; ++i) before += static_cast<std::size_t>(piece.matrices[i].num_strips);
    const auto is_done = [&](std::int32_t strip) -> std::uint8_t& {
      return is_prepared_[before + static_cast<std::size_t>(strip - m.first_strip)];
    };
    std::int32_t num_done = 0;
    while (begin < end) {
      std::int32_t last = begin;
      while (last < end && is_done(last) == 0) ++last;
      if (last > begin) prepare_strips(m, memory, piece.is_packed() ? raw : nullptr, begin, last);
      for (std::int32_t strip = begin; strip < last; ++strip) is_done(strip) = 1;
      num_done += last - begin;
      begin = last + 1;
    }
    return num_done > 0 && unprepared_.fetch_sub(num_done, std::memory_order_acq_rel) == num_done;
  }

 private:
  std::int32_t segments_left_ = 0;
  bool has_failed_ = false;
  std::atomic<std::int32_t> unprepared_{0};
  std::vector<std::uint8_t> is_prepared_;  // by strip, matrix after matrix
};

}  // namespace edgert
