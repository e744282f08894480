#include "weights/request.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string_view>

#include "base/float16.h"
#include "formats/pack.h"

namespace edgert {
namespace {

std::int64_t element_bytes(Format format) { return format == Format::f32 ? 4 : 2; }

float widen(Format format, const std::uint8_t* p) {
  if (format == Format::f32) {
    float value;
    std::memcpy(&value, p, 4);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, p, 2);
  return format == Format::f16 ? float_from_f16(bits) : float_from_bf16(bits);
}

// Where the packer writes six bits: the products with codes that matrix units take as bytes rely on it.
bool has_six_bits(Format format, std::int32_t part) {
  const std::string_view name = spec(format).part_names[static_cast<std::size_t>(part)];
  return (format == Format::q4_k || format == Format::q5_k) && (name == "subscale" || name == "submin");
}

constexpr std::int64_t kCacheLine = 64;

inline void prefetch(const std::uint8_t* p) {
#if defined(__GNUC__)
  __builtin_prefetch(p);
#else
  static_cast<void>(p);
#endif
}

std::int64_t source_row(std::int64_t row, std::int64_t head_rows) {
  const std::int64_t half = head_rows / 2, in_head = row % head_rows;
  return row - in_head + 2 * (in_head % half) + in_head / half;
}

}  // namespace

std::int64_t file_row_bytes(const WeightRequest& request) {
  const FormatSpec& s = spec(request.format);
  const std::int64_t cols = std::max<std::int64_t>(request.cols, 1);
  return s.is_float ? cols * element_bytes(request.format) : cols / s.block_columns * s.block_bytes;
}

std::int64_t row_unit(const WeightRequest& request) {
  return std::lcm<std::int64_t, std::int64_t>(kStripRows, std::max<std::int64_t>(1, request.head_rows()));
}

void place_rows(const WeightRequest& request, const std::uint8_t* data, std::int64_t first_row, std::int64_t num_rows,
                std::uint8_t* const out[kMaxParts]) {
  place_strips(request, data, first_row, num_rows, first_row / kStripRows,
               (first_row + num_rows + kStripRows - 1) / kStripRows, out);
}

void place_strips(const WeightRequest& request, const std::uint8_t* data, std::int64_t first_row, std::int64_t num_rows,
                  std::int64_t first_strip, std::int64_t last_strip, std::uint8_t* const out[kMaxParts]) {
  const std::int64_t row_bytes = file_row_bytes(request), head_rows = request.head_rows();
  const auto row_data = [&](std::int64_t row) -> const std::uint8_t* {
    if (row >= first_row + num_rows) return nullptr;
    return data + ((head_rows > 0 ? source_row(row, head_rows) : row) - first_row) * row_bytes;
  };
  const std::int64_t begin = first_strip * kStripRows, end = std::min(last_strip * kStripRows, first_row + num_rows);
  if (request.is_vector()) {
    auto* values = reinterpret_cast<float*>(out[0]);
    for (std::int64_t row = begin; row < end; ++row) values[row] = widen(request.format, row_data(row));
  } else if (spec(request.format).is_float) {
    for (std::int64_t row = begin; row < end; ++row)
      std::memcpy(out[0] + row * row_bytes, row_data(row), static_cast<std::size_t>(row_bytes));
  } else {
    // Sixteen short rows at a time are no stream that the processor would read ahead.
    const auto read_ahead = [&](std::int64_t row) {
      const std::int64_t first = (row - first_row) * row_bytes, last = std::min(row + kStripRows - first_row, num_rows);
      for (std::int64_t i = first; i < last * row_bytes; i += kCacheLine) prefetch(data + i);
    };
    read_ahead(begin);
    for (std::int64_t row = begin; row < end; row += kStripRows) {
      read_ahead(row + kStripRows);
      const std::uint8_t* rows[kStripRows];
      for (int i = 0; i < kStripRows; ++i) rows[i] = row_data(row + i);
      pack_strip(request.format, rows, static_cast<int>(request.cols), static_cast<int>(row / kStripRows), out);
    }
  }
}

void multiply_bf16(std::uint8_t* values, std::int64_t count, std::int32_t exponent) {
  const float factor = std::ldexp(1.0f, exponent);
  for (std::uint8_t* p = values; p < values + 2 * count; p += 2) {
    std::uint16_t bits;
    std::memcpy(&bits, p, 2);
    bits = static_cast<std::uint16_t>(bits_from_float(float_from_bf16(bits) * factor) >> 16);
    std::memcpy(p, &bits, 2);
  }
}

void place_neurons(const WeightRequest& request, const std::uint8_t* data, std::int64_t first_column,
                   std::int64_t num_columns, std::uint8_t* const out[kMaxParts]) {
  const std::int64_t record_bytes = neuron_bytes(request.neuron_bits, request.rows);
  for (std::int64_t column = 0; column < num_columns; column += kGroupColumns)
    pack_neurons(request.format, request.neuron_bits, data + column * record_bytes, record_bytes,
                 static_cast<int>(std::min<std::int64_t>(kGroupColumns, num_columns - column)),
                 (first_column + column) / kGroupColumns, request.rows, request.cols, out);
}

bool needs_finish(const WeightRequest& request, std::int32_t part) {
  return (part == 0 && request.scale_exponent > 0) || has_six_bits(request.format, part);
}

void finish_part(const WeightRequest& request, std::int32_t part, std::uint8_t* bytes, std::int64_t count) {
  if (part == 0 && request.scale_exponent > 0) multiply_bf16(bytes, count / 2, request.scale_exponent);
  if (!has_six_bits(request.format, part) || count == 0) return;
  const std::uint8_t largest = *std::max_element(bytes, bytes + count);
  if (largest > 63)
    throw std::invalid_argument(request.name + ": found " + std::to_string(largest) + " in its " +
                                spec(request.format).part_names[static_cast<std::size_t>(part)] +
                                ", expected 0 to 63; convert the model again");
}

}  // namespace edgert
