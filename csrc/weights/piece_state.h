// How far a piece is: on disk, being read, resident, prepared.
#pragma once
#include <algorithm>
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

  // Asks for all segments, of a piece that is read in two for the leading ones. REQUIRES: memory, and raw where the
  // piece is packed, are set.
  void read(Reader& reader, const Piece& piece, ReadTag number, ReadPriority priority) {
    std::int32_t strips = 0;
    for (const PieceMatrix& m : piece.matrices) strips += m.num_strips;
    prepared_.assign(piece.needs_preparing ? static_cast<std::size_t>(strips) : 0, Prepared::none);
    set_coarse(piece.is_in_two());
    residence.store(Residence::reading);
    submit(reader, piece, number, priority, 0, piece.num_leading);
  }
  // Asks for the other segments of a resident piece that is read in two.
  void read_rest(Reader& reader, const Piece& piece, ReadTag number, ReadPriority priority) {
    submit(reader, piece, number, priority, piece.num_leading, piece.segments.size());
  }
  // One of them has ended. Returns true when all that were asked for together have.
  bool ended(ReadOutcome outcome) {
    has_failed_ |= outcome != ReadOutcome::complete;
    return --segments_left_ == 0;
  }
  bool has_failed() const { return has_failed_; }

  // Whether only the leading parts are there, or count. Changed while no thread prepares or computes.
  bool is_coarse() const { return is_coarse_; }
  void set_coarse(bool is_coarse) {
    is_coarse_ = is_coarse;
    unprepared_.store(static_cast<std::int32_t>(prepared_.size()) -
                      static_cast<std::int32_t>(std::count(prepared_.begin(), prepared_.end(), wanted())));
  }

  bool is_prepared() const { return unprepared_.load(std::memory_order_acquire) == 0; }
  // Prepares strips [begin, end) of a matrix of the resident piece, those that are not yet. No lock: a strip is asked
  // for by one thread at a time. Returns true if these were the last of the piece. Throws as prepare_strips.
  bool prepare(const Piece& piece, std::size_t matrix, std::int32_t begin, std::int32_t end) {
    const PieceMatrix& m = piece.matrices[matrix];
    std::size_t before = 0;
    for (std::size_t i = 0; i < matrix; ++i) before += static_cast<std::size_t>(piece.matrices[i].num_strips);
    const auto at = [&](std::int32_t strip) -> Prepared& {
      return prepared_[before + static_cast<std::size_t>(strip - m.first_strip)];
    };
    std::int32_t num_done = 0;
    for (std::int32_t last = begin; begin < end; begin = last) {
      const Prepared found = at(begin);
      while (last < end && at(last) == found) ++last;
      if (found == wanted()) continue;
      if (found == Prepared::none) prepare_strips(m, memory, piece.is_packed() ? raw : nullptr, begin, last);
      if (found == Prepared::coarse) widen_scales(m, memory, begin, last, -m.leading_exponent);
      if (is_coarse_) widen_scales(m, memory, begin, last, m.leading_exponent);
      for (std::int32_t strip = begin; strip < last; ++strip) at(strip) = wanted();
      num_done += last - begin;
    }
    return num_done > 0 && unprepared_.fetch_sub(num_done, std::memory_order_acq_rel) == num_done;
  }

 private:
  enum class Prepared : std::uint8_t { none, whole, coarse };

  Prepared wanted() const { return is_coarse_ ? Prepared::coarse : Prepared::whole; }
  void submit(Reader& reader, const Piece& piece, ReadTag number, ReadPriority priority, std::size_t first,
              std::size_t last) {
    segments_left_ = static_cast<std::int32_t>(last - first);
    has_failed_ = false;
    std::uint8_t* out = piece.is_packed() ? raw : memory;
    for (std::size_t i = first; i < last; ++i) {
      const PieceSegment& s = piece.segments[i];
      reader.submit({segment_tag(number, i), s.file, s.offset, s.length, out + s.place, priority});
    }
  }

  std::int32_t segments_left_ = 0;
  bool has_failed_ = false, is_coarse_ = false;
  std::atomic<std::int32_t> unprepared_{0};
  std::vector<Prepared> prepared_;  // by strip, matrix after matrix
};

}  // namespace edgert
