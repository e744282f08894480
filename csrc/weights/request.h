// A weight as a file holds it, and what its bytes become in memory.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "formats/format.h"

namespace edgert {

using WeightId = std::int32_t;

struct PartAddress {
  std::int32_t file = 0;  // index from add_file: a model may be split over files
  std::int64_t offset = 0, length = 0;
};

// A weight as a file holds it. `cols` is 0 for a vector of `rows` values.
struct WeightRequest {
  std::string name;
  Format format = Format::f32;
  std::int64_t rows = 0, cols = 0;
  std::vector<PartAddress> parts;  // one for float formats and ggml blocks, else one for each part of the format
  bool is_packed = false;          // the file holds the strips of the format's parts, not rows
  // Heads of a matrix whose rows a GGUF file holds pair by pair; 0: the rows lie as they are meant.
  // Row h * head_dim + t * (head_dim / 2) + j is read from row h * head_dim + 2 * j + t.
  std::int32_t unpermute_heads = 0;
  // The bf16 scales of part 0 are multiplied by 2 to this power: a uniform grid seen at fewer bits has wider steps.
  std::int32_t scale_exponent = 0;
  // Not 0: behind the parts before the codes the file holds one more, the codes neuron by neuron, of so many bits each
  // (docs/formats.md); those beyond the format's are dropped. REQUIRES: is_packed.
  std::int32_t neuron_bits = 0;
  // Starts, columns and values of the outliers beside the parts (docs/formats.md, section 2); empty: there are none.
  std::vector<PartAddress> outliers;

  bool is_vector() const { return cols == 0; }
  std::int64_t head_rows() const { return unpermute_heads > 0 ? rows / unpermute_heads : 0; }
  // Its bytes are used as they are read: parts, or the rows of a float format.
  bool is_direct() const {
    return !is_vector() && unpermute_heads == 0 && neuron_bits == 0 && (is_packed || spec(format).is_float);
  }
};

// Bytes of one row in a file that holds rows; of a vector, of one value.
std::int64_t file_row_bytes(const WeightRequest& request);

// Rows that a reader must take together: whole strips and whole heads, so that they are one range of the file.
std::int64_t row_unit(const WeightRequest& request);

// Puts `num_rows` rows of a weight that is not direct, from row `first_row` on, into the parts as kernels read them.
// data: their bytes in the file. out[p]: where part p of row 0 would lie. REQUIRES: first_row is a multiple of
// row_unit, and so is num_rows unless the weight ends there.
void place_rows(const WeightRequest& request, const std::uint8_t* data, std::int64_t first_row, std::int64_t num_rows,
                std::uint8_t* const out[kMaxParts]);
// The same for a part of them, the strips [first_strip, last_strip), from all the rows of `data`.
void place_strips(const WeightRequest& request, const std::uint8_t* data, std::int64_t first_row, std::int64_t num_rows,
                  std::int64_t first_strip, std::int64_t last_strip, std::uint8_t* const out[kMaxParts]);

// Multiplies bf16 values by 2 to this power, which is exact up to the largest of them.
void multiply_bf16(std::uint8_t* values, std::int64_t count, std::int32_t exponent);
// The same for columns that lie neuron by neuron, from `first_column` on. REQUIRES: first_column is a multiple of 64,
// and so is num_columns unless the weight ends there.
void place_neurons(const WeightRequest& request, const std::uint8_t* data, std::int64_t first_column,
                   std::int64_t num_columns, std::uint8_t* const out[kMaxParts]);

// What bytes of a packed part need before kernels may read them: scales are widened, numbers of six bits looked at.
bool needs_finish(const WeightRequest& request, std::int32_t part);
// Throws std::invalid_argument for a number that is too large.
void finish_part(const WeightRequest& request, std::int32_t part, std::uint8_t* bytes, std::int64_t count);

}  // namespace edgert
