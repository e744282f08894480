// What is read at once: some strips of a matrix, or all matrices of an expert.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "io/reader.h"
#include "weights/request.h"

namespace edgert {

// Ranges of a file that lie no further apart are read as one.
inline constexpr std::int64_t kMergedGap = kDirectAlignment;
// Behind memory for pieces: kernels read whole vectors at the end of a part.
inline constexpr std::int64_t kVectorSlack = 256;

// A range of a file and where its window lies in the memory that it is read into.
struct PieceSegment {
  std::int32_t file = 0;
  std::int64_t offset = 0, length = 0;
  std::int64_t place = 0;  // a multiple of kDirectAlignment
};

// Strips [first_strip, first_strip + num_strips) of a weight inside a piece.
struct PieceMatrix {
  WeightId id = -1;
  const WeightRequest* request = nullptr;
  std::int32_t first_strip = 0, num_strips = 0;
  std::array<std::int64_t, kMaxParts> places{};  // of the part's first strip in the piece's memory; -1: not there
  std::int64_t raw_place = 0;                    // of the first row in the raw memory, where rows are packed
  // What its leading parts are, and how many times as wide, by a power of two, their scales are then.
  Format leading_format = Format::f32;
  std::int32_t leading_exponent = 0;
};

// Bytes are read into `raw` memory and packed from there, or, where they are used as they are, into the memory itself.
struct Piece {
  std::vector<PieceSegment> segments;
  std::vector<PieceMatrix> matrices;
  std::int64_t memory_bytes = 0;  // multiples of kDirectAlignment
  std::int64_t raw_bytes = 0;     // 0: read into the memory itself
  std::int64_t file_bytes = 0;
  bool needs_preparing = false;  // packing, what finish_part does, or wider scales of leading parts
  std::size_t num_leading = 0;   // segments, at the front, with the leading parts; all where it is not read in two

  bool is_packed() const { return raw_bytes > 0; }
  bool is_in_two() const { return num_leading < segments.size(); }
};

// Strips of one matrix. REQUIRES: first_strip is a multiple of row_unit / 16, and so is num_strips unless it is the
// last.
Piece make_piece(WeightId id, const WeightRequest& request, std::int32_t first_strip, std::int32_t num_strips);
// All strips of some matrices; what is adjacent in a file is read at once. leading_bits: where they are stored wider,
// their parts up to this width come first, in segments of their own; 0: in one with the others.
Piece make_piece(const std::vector<WeightId>& ids, const std::vector<const WeightRequest*>& requests,
                 int leading_bits = 0);

// Bytes of a strip in a part that strips share out; 0 for a part that the tensor has once.
std::int64_t strip_part_bytes(const WeightRequest& request, int part);

// Makes strips [begin, end) of a matrix ready for kernels. memory, raw: where the piece lies. Throws
// std::invalid_argument as finish_part. Strips of one piece may be prepared on several threads, each once.
void prepare_strips(const PieceMatrix& matrix, std::uint8_t* memory, const std::uint8_t* raw, std::int32_t begin,
                    std::int32_t end);

// Makes the scales of strips [begin, end), which are prepared, 2^exponent times as wide.
void widen_scales(const PieceMatrix& matrix, std::uint8_t* memory, std::int32_t begin, std::int32_t end,
                  std::int32_t exponent);

// The weight with its parts in `memory`; only the piece's strips may be read. `base`: shape, and what is resident.
WeightView piece_view(const PieceMatrix& matrix, const WeightView& base, std::uint8_t* memory);

}  // namespace edgert
