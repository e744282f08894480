#include "weights/piece.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/memory.h"
#include "io/reader.h"

namespace edgert {
namespace {

constexpr std::int64_t kPartAlignment = 64;

struct Range {
  std::int32_t file;
  std::int64_t offset, length;
  std::size_t matrix;
  int part;  // -1: rows
  bool is_leading = true;
};

// What the leading parts of a tensor are by themselves: p2 to p7 and c2 to c4 at no more than `bits` bits, other
// formats as they are. REQUIRES: bits is 2 or more.
Format leading_format(Format format, int bits) {
  for (const auto& [narrowest, widest] : {std::pair{Format::p2, Format::p7}, std::pair{Format::c2, Format::c4}})
    if (format >= narrowest && format <= widest)
      return std::min(format, static_cast<Format>(static_cast<int>(narrowest) + bits - 2));
  return format;
}

bool is_aligned(const WeightRequest& r) {
  return std::all_of(r.parts.begin(), r.parts.end(),
                     [](const PartAddress& a) { return a.offset % kPartAlignment == 0; });
}

int num_parts(const WeightRequest& r) { return spec(r.format).num_parts; }

// What a matrix of the piece asks of the files.
void add_ranges(const PieceMatrix& m, std::size_t index, bool is_packed, std::vector<Range>& ranges) {
  const WeightRequest& r = *m.request;
  if (!r.is_packed || spec(r.format).is_float) {
    const std::int64_t row_bytes = file_row_bytes(r), first = std::int64_t{m.first_strip} * kStripRows;
    const std::int64_t rows = std::min(r.rows - first, std::int64_t{m.num_strips} * kStripRows);
    ranges.push_back(
        {r.parts[0].file, r.parts[0].offset + first * row_bytes, rows * row_bytes, index, is_packed ? -1 : 0});
    return;
  }
  for (int p = 0; p < num_parts(r); ++p) {
    const std::int64_t strip = strip_part_bytes(r, p);
    if (strip == 0) continue;
    const PartAddress& part = r.parts[static_cast<std::size_t>(p)];
    ranges.push_back({part.file, part.offset + m.first_strip * strip, m.num_strips * strip, index, p,
                      p < spec(m.leading_format).num_parts});
  }
}

// Lays the ranges out as segments of `piece`, leading ones first, neighbours in one; returns the bytes of their
// windows.
std::int64_t lay_out(std::vector<Range>& ranges, Piece& piece) {
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return std::tuple(!a.is_leading, a.file, a.offset) < std::tuple(!b.is_leading, b.file, b.offset);
  });
  bool is_leading = true;
  for (const Range& range : ranges) {
    if (std::exchange(is_leading, range.is_leading) == range.is_leading && !piece.segments.empty()) {
      PieceSegment& last = piece.segments.back();
      if (last.file == range.file && range.offset - (last.offset + last.length) < kMergedGap) {
        last.length = std::max(last.length, range.offset + range.length - last.offset);
        continue;
      }
    }
    piece.segments.push_back({range.file, range.offset, range.length, 0});
    if (range.is_leading) piece.num_leading = piece.segments.size();
  }
  std::int64_t end = 0;
  for (PieceSegment& segment : piece.segments) {
    segment.place = end;
    end += window_bytes(segment.length);
    piece.file_bytes += segment.length;
  }
  return end;
}

std::int64_t place_of(const Range& range, const Piece& piece) {
  const auto it = std::find_if(piece.segments.begin(), piece.segments.end(), [&](const PieceSegment& s) {
    return s.file == range.file && s.offset <= range.offset && range.offset + range.length <= s.offset + s.length;
  });
  return it->place + window_lead(it->offset) + (range.offset - it->offset);
}

// Where the packed parts of a matrix go; returns the end of the last.
std::int64_t place_parts(PieceMatrix& m, std::int64_t end) {
  for (int p = 0; p < num_parts(*m.request); ++p) {
    m.places[static_cast<std::size_t>(p)] = end;
    end += round_up(m.num_strips * strip_part_bytes(*m.request, p), kPartAlignment);
  }
  return end;
}

Piece complete(Piece piece, int leading_bits = 0) {
  const bool is_packed = std::any_of(piece.matrices.begin(), piece.matrices.end(), [](const PieceMatrix& m) {
    return !m.request->is_direct() || !is_aligned(*m.request);
  });
  std::vector<Range> ranges;
  for (std::size_t i = 0; i < piece.matrices.size(); ++i) {
    PieceMatrix& m = piece.matrices[i];
    m.places.fill(-1);
    const Format format = m.request->format;
    m.leading_format = leading_bits > 0 && !is_packed ? leading_format(format, leading_bits) : format;
    // In a codebook the width has a table of its own, and the scale stays.
    if (format <= Format::p7) m.leading_exponent = static_cast<int>(format) - static_cast<int>(m.leading_format);
    piece.needs_preparing |= m.leading_exponent > 0;
    add_ranges(m, i, is_packed, ranges);
  }
  const std::int64_t window = lay_out(ranges, piece);
  for (const Range& range : ranges) {
    PieceMatrix& m = piece.matrices[range.matrix];
    (range.part < 0 ? m.raw_place : m.places[static_cast<std::size_t>(range.part)]) = place_of(range, piece);
    piece.needs_preparing |= range.part < 0 || needs_finish(*m.request, range.part);
  }
  if (!is_packed) {
    piece.memory_bytes = window;
    return piece;
  }
  piece.raw_bytes = window;
  for (PieceMatrix& m : piece.matrices) piece.memory_bytes = place_parts(m, piece.memory_bytes);
  piece.memory_bytes = round_up(piece.memory_bytes, kDirectAlignment);
  return piece;
}

}  // namespace

std::int64_t strip_part_bytes(const WeightRequest& request, int part) {
  const FormatSpec& s = spec(request.format);
  if (s.is_float) return kStripRows * file_row_bytes(request);
  if (s.part_groups[static_cast<std::size_t>(part)] == kWholeTensor) return 0;
  return part_bytes(request.format, part, kStripRows, request.cols);
}

Piece make_piece(WeightId id, const WeightRequest& request, std::int32_t first_strip, std::int32_t num_strips) {
  Piece piece;
  piece.matrices.push_back({id, &request, first_strip, num_strips});
  return complete(std::move(piece));
}

Piece make_piece(const std::vector<WeightId>& ids, const std::vector<const WeightRequest*>& requests,
                 int leading_bits) {
  Piece piece;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto strips = static_cast<std::int32_t>((requests[i]->rows + kStripRows - 1) / kStripRows);
    piece.matrices.push_back({ids[i], requests[i], 0, strips});
  }
  return complete(std::move(piece), leading_bits);
}

void prepare_strips(const PieceMatrix& matrix, std::uint8_t* memory, const std::uint8_t* raw, std::int32_t begin,
                    std::int32_t end) {
  const WeightRequest& r = *matrix.request;
  if (raw == nullptr) {
    for (int p = 0; p < num_parts(r); ++p) {
      const std::int64_t strip = strip_part_bytes(r, p);
      if (strip > 0 && needs_finish(r, p))
        finish_part(r, p, memory + matrix.places[static_cast<std::size_t>(p)] + (begin - matrix.first_strip) * strip,
                    (end - begin) * strip);
    }
    return;
  }
  std::uint8_t* out[kMaxParts] = {};
  for (int p = 0; p < num_parts(r); ++p)
    out[p] = memory + matrix.places[static_cast<std::size_t>(p)] - matrix.first_strip * strip_part_bytes(r, p);
  const std::int64_t first = std::int64_t{matrix.first_strip} * kStripRows;
  const std::int64_t rows = std::min(r.rows - first, std::int64_t{matrix.num_strips} * kStripRows);
  place_strips(r, raw + matrix.raw_place, first, rows, begin, end, out);
}

void widen_scales(const PieceMatrix& matrix, std::uint8_t* memory, std::int32_t begin, std::int32_t end,
                  std::int32_t exponent) {
  const std::int64_t strip = strip_part_bytes(*matrix.request, 0);
  multiply_bf16(memory + matrix.places[0] + (begin - matrix.first_strip) * strip, (end - begin) * strip / 2, exponent);
}

WeightView piece_view(const PieceMatrix& matrix, const WeightView& base, std::uint8_t* memory) {
  WeightView view = base;
  for (int p = 0; p < num_parts(*matrix.request); ++p) {
    const std::int64_t place = matrix.places[static_cast<std::size_t>(p)];
    if (place >= 0)
      view.parts[static_cast<std::size_t>(p)] =
          memory + place - matrix.first_strip * strip_part_bytes(*matrix.request, p);
  }
  return view;
}

}  // namespace edgert
