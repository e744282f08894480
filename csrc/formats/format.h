// What the bytes of a weight mean: the formats, and the parts that a packed tensor is made of.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace edgert {

// Rows of a strip lie in the lanes; columns are quantised and summed in groups (docs/formats.md).
inline constexpr int kStripRows = 16;
inline constexpr int kGroupColumns = 64;
inline constexpr int kMaxParts = 7;
inline constexpr int kWholeTensor = 0;  // in place of a number of groups

enum class Format : std::uint8_t {
  f32,
  f16,
  bf16,
  q8_0,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq4_nl,
  iq4_xs,
  mxfp4,
  tq1_0,
  tq2_0,
  p1,
  p2,
  p3,
  p4,
  p5,
  p6,
  p7,
  p8,
  c2,
  c3,
  c4,
  ternary
};
inline constexpr int kNumFormats = 30;

// A weight that lies beside the quantised ones, and is added to them.
struct Outlier {
  float value;
  std::uint16_t column, row;  // row: of the strip
};
inline constexpr std::int64_t kMaxOutlierColumns = 65536;

// A weight matrix as the kernels read it. Float formats: parts[0] is rows x cols, row by row, row_bytes apart.
// Other formats: each part is contiguous for the whole tensor, strip after strip, group after group.
struct WeightView {
  Format format = Format::f32;
  std::int32_t rows = 0, cols = 0;      // true shape
  std::int32_t strips = 0, groups = 0;  // ceil(rows / 16), ceil(cols / 64)
  std::int64_t row_bytes = 0;           // float formats only
  std::array<const std::uint8_t*, kMaxParts> parts{};
  // Strip s has the outliers [outlier_starts[s], outlier_starts[s + 1]), those of one row by ascending columns; rows
  // may take turns. Null: there are none.
  const std::uint32_t* outlier_starts = nullptr;  // [strips + 1]
  const Outlier* outliers = nullptr;
};

// Columns of a weight that lies neuron by neuron, those that some token of the input multiplies by a code other than 0.
struct ActiveNeurons {
  const std::int32_t* group_starts = nullptr;    // [groups + 1]: group g has the neurons from start g to start g + 1
  const std::int32_t* columns = nullptr;         // ascending
  const std::uint8_t* const* records = nullptr;  // of each column: its codes of all rows
  int bits = 0;                                  // of a code in a record; those beyond the format's are dropped
};

// Static description of a format. part_bytes[i]: bytes of part i for one strip and `part_groups[i]` groups
// (4 for scales of 256 columns and tq1_0's codes, else 1; kWholeTensor: the tensor has the part once). Part order is
// the order in our files: a prefix is a coarser tensor.
struct FormatSpec {
  const char* name;
  bool is_float;
  int block_columns;       // columns of a block in a GGUF file (0: the format does not occur there)
  int block_bytes;         // bytes of that block
  int activation_columns;  // columns that share a scale of the quantised input: 64, or 32 (blocks of 32); 0 for
                           // float formats
  int num_parts;
  std::array<const char*, kMaxParts> part_names;  // "scale" "table" "bits" "field" "plane1" to "plane5" "nibble" "byte"
                                                  // "trit" "minimum" "subscale" "submin" "exponent"
  std::array<int, kMaxParts> part_bytes;
  std::array<int, kMaxParts> part_groups;
};

const FormatSpec& spec(Format format);
// Returns false if no format has that name.
bool format_from_name(const char* name, Format& out);
// Bytes of part `part` of a rows x cols tensor (float formats: rows * cols * element bytes).
std::int64_t part_bytes(Format format, int part, std::int64_t rows, std::int64_t cols);

// Codes may lie column by column instead, a record for each column: the neuron that feeds it (docs/formats.md). Bits of
// a code of a format that allows it; 0: it does not.
int neuron_bits(Format format);
// Parts of such a format before its codes: the scale, and a table.
int num_scale_parts(Format format);
// Bytes of the record of one column, whose codes have so many bits.
std::int64_t neuron_bytes(int bits, std::int64_t rows);

}  // namespace edgert
