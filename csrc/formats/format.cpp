#include "formats/format.h"

#include <cstring>

namespace edgert {
namespace {

constexpr std::int64_t ceil_div(std::int64_t value, std::int64_t divisor) { return (value + divisor - 1) / divisor; }

// In the order of enum Format. Bytes of a float format's part 0: one element.
constexpr FormatSpec kSpecs[kNumFormats] = {
    {"f32", true, 1, 4, 0, 1, {"value"}, {4}, {1}},
    {"f16", true, 1, 2, 0, 1, {"value"}, {2}, {1}},
    {"bf16", true, 1, 2, 0, 1, {"value"}, {2}, {1}},
    {"q8_0", false, 32, 34, 32, 2, {"scale", "byte"}, {64, 1024}, {1, 1}},
    {"q4_0", false, 32, 18, 32, 2, {"scale", "nibble"}, {64, 512}, {1, 1}},
    {"q4_1", false, 32, 20, 32, 3, {"scale", "minimum", "nibble"}, {64, 64, 512}, {1, 1, 1}},
    {"q5_0", false, 32, 22, 32, 3, {"scale", "nibble", "plane1"}, {64, 512, 128}, {1, 1, 1}},
    {"q5_1", false, 32, 24, 32, 4, {"scale", "minimum", "nibble", "plane1"}, {64, 64, 512, 128}, {1, 1, 1, 1}},
    {"q2_k", false, 256, 84, 64, 3, {"superscale", "subscale", "field"}, {64, 64, 256}, {4, 1, 1}},
    {"q3_k", false, 256, 110, 64, 4, {"superscale", "subscale", "field", "plane1"}, {32, 64, 256, 128}, {4, 1, 1, 1}},
    {"q4_k", false, 256, 144, 64, 4, {"superscale", "subscale", "submin", "nibble"}, {64, 32, 32, 512}, {4, 1, 1, 1}},
    {"q5_k",
     false,
     256,
     176,
     64,
     5,
     {"superscale", "subscale", "submin", "nibble", "plane1"},
     {64, 32, 32, 512, 128},
     {4, 1, 1, 1, 1}},
    {"q6_k", false, 256, 210, 64, 4, {"superscale", "subscale", "nibble", "field"}, {32, 64, 512, 256}, {4, 1, 1, 1}},
    {"iq4_nl", false, 32, 18, 32, 2, {"scale", "nibble"}, {64, 512}, {1, 1}},
    {"iq4_xs", false, 256, 136, 64, 3, {"superscale", "subscale", "nibble"}, {32, 32, 512}, {4, 1, 1}},
    {"mxfp4", false, 32, 17, 32, 2, {"exponent", "nibble"}, {32, 512}, {1, 1}},
    {"tq1_0", false, 256, 54, 64, 2, {"superscale", "trit"}, {32, 832}, {4, 4}},
    {"tq2_0", false, 256, 66, 64, 2, {"superscale", "field"}, {32, 256}, {4, 1}},
    {"p1", false, 0, 0, 64, 2, {"scale", "bits"}, {32, 128}, {1, 1}},
    {"p2", false, 0, 0, 64, 2, {"scale", "field"}, {32, 256}, {1, 1}},
    {"p3", false, 0, 0, 64, 3, {"scale", "field", "plane1"}, {32, 256, 128}, {1, 1, 1}},
    {"p4", false, 0, 0, 64, 4, {"scale", "field", "plane1", "plane2"}, {32, 256, 128, 128}, {1, 1, 1, 1}},
    {"p5",
     false,
     0,
     0,
     64,
     5,
     {"scale", "field", "plane1", "plane2", "plane3"},
     {32, 256, 128, 128, 128},
     {1, 1, 1, 1, 1}},
    {"p6",
     false,
     0,
     0,
     64,
     6,
     {"scale", "field", "plane1", "plane2", "plane3", "plane4"},
     {32, 256, 128, 128, 128, 128},
     {1, 1, 1, 1, 1, 1}},
    {"p7",
     false,
     0,
     0,
     64,
     7,
     {"scale", "field", "plane1", "plane2", "plane3", "plane4", "plane5"},
     {32, 256, 128, 128, 128, 128, 128},
     {1, 1, 1, 1, 1, 1, 1}},
    {"p8", false, 0, 0, 64, 2, {"scale", "byte"}, {32, 1024}, {1, 1}},
    {"c2", false, 0, 0, 64, 3, {"scale", "table", "field"}, {32, 32, 256}, {1, kWholeTensor, 1}},
    {"c3", false, 0, 0, 64, 4, {"scale", "table", "field", "plane1"}, {32, 32, 256, 128}, {1, kWholeTensor, 1, 1}},
    {"c4",
     false,
     0,
     0,
     64,
     5,
     {"scale", "table", "field", "plane1", "plane2"},
     {32, 32, 256, 128, 128},
     {1, kWholeTensor, 1, 1, 1}},
    {"ternary", false, 0, 0, 64, 2, {"scale", "trit"}, {32, 832}, {4, 4}},
};

bool holds_codes(const char* part) { return std::strcmp(part, "scale") != 0 && std::strcmp(part, "table") != 0; }

}  // namespace

const FormatSpec& spec(Format format) { return kSpecs[static_cast<int>(format)]; }

bool format_from_name(const char* name, Format& out) {
  for (int i = 0; i < kNumFormats; ++i) {
    if (std::strcmp(kSpecs[i].name, name) == 0) {
      out = static_cast<Format>(i);
      return true;
    }
  }
  return false;
}

std::int64_t part_bytes(Format format, int part, std::int64_t rows, std::int64_t cols) {
  const FormatSpec& s = spec(format);
  if (part >= s.num_parts) return 0;
  if (s.is_float) return rows * cols * s.part_bytes[0];
  if (s.part_groups[part] == kWholeTensor) return s.part_bytes[part];
  const std::int64_t groups = ceil_div(cols, kGroupColumns);
  return ceil_div(rows, kStripRows) * ceil_div(groups, s.part_groups[part]) * s.part_bytes[part];
}

int neuron_bits(Format format) {
  const FormatSpec& s = spec(format);
  if (s.is_float || s.block_columns != 0 || s.part_groups[0] != 1) return 0;
  int num_bytes = 0;
  for (int p = num_scale_parts(format); p < s.num_parts; ++p) num_bytes += s.part_bytes[p];
  const int bits = num_bytes * 8 / (kStripRows * kGroupColumns);
  return bits < 2 ? 0 : bits;  // of one bit: indices of tables, not codes
}

int num_scale_parts(Format format) {
  const FormatSpec& s = spec(format);
  int count = 0;
  while (count < s.num_parts && !holds_codes(s.part_names[count])) ++count;
  return count;
}

std::int64_t neuron_bytes(int bits, std::int64_t rows) { return ceil_div(rows, kStripRows) * kStripRows * bits / 8; }

}  // namespace edgert
