#include "weights/outliers.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "base/float16.h"

namespace edgert {
namespace {

template <class Number>
Number number_at(const std::uint8_t* p, std::int64_t index) {
  Number number;
  std::memcpy(&number, p + index * static_cast<std::int64_t>(sizeof(Number)), sizeof(Number));
  return number;
}

void check(const WeightRequest& r, const std::uint8_t* starts, const std::uint8_t* columns,
           const std::uint8_t* values) {
  const auto fail = [&](std::int64_t row, const std::string& what) {
    throw std::invalid_argument(r.name + ": outliers of row " + std::to_string(row) + ": " + what);
  };
  const auto start_of = [&](std::int64_t row) { return number_at<std::uint32_t>(starts, row); };
  const std::int64_t count = r.outliers[1].length / 2;
  if (start_of(0) != 0) fail(0, "found the start " + std::to_string(start_of(0)) + ", expected 0");
  if (start_of(r.rows) != count)
    fail(r.rows - 1, "found the end " + std::to_string(start_of(r.rows)) + ", expected " + std::to_string(count));
  for (std::int64_t row = 0; row < r.rows; ++row) {
    const std::int64_t first = start_of(row), last = start_of(row + 1);
    if (last < first || last > count)
      fail(row, "found the start " + std::to_string(first) + " and the end " + std::to_string(last) +
                    ", expected ascending ones up to " + std::to_string(count));
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t column = number_at<std::uint16_t>(columns, i);
      if (column >= r.cols)
        fail(row, "found column " + std::to_string(column) + ", expected below " + std::to_string(r.cols));
      if (i > first && column <= number_at<std::uint16_t>(columns, i - 1))
        fail(row, "found column " + std::to_string(column) + ", expected ascending ones");
      if ((number_at<std::uint16_t>(values, i) & 0x7C00) == 0x7C00)
        fail(row, "found a value that is infinite or no number in column " + std::to_string(column) +
                      ", expected a finite one");
    }
  }
}

}  // namespace

void place_outliers(const WeightRequest& r, const std::uint8_t* starts, const std::uint8_t* columns,
                    const std::uint8_t* values, std::uint32_t* strip_starts, Outlier* outliers) {
  check(r, starts, columns, values);
  const auto start_of = [&](std::int64_t row) { return number_at<std::uint32_t>(starts, row); };
  std::uint32_t num_done = 0;
  for (std::int64_t first_row = 0; first_row < r.rows; first_row += kStripRows) {
    const std::int64_t last_row = std::min(first_row + kStripRows, r.rows);
    *strip_starts++ = num_done;
    for (std::int64_t turn = 0; num_done < start_of(last_row); ++turn)
      for (std::int64_t row = first_row; row < last_row; ++row) {
        const std::int64_t i = start_of(row) + turn;
        if (i < start_of(row + 1))
          outliers[num_done++] = {float_from_f16(number_at<std::uint16_t>(values, i)),
                                  number_at<std::uint16_t>(columns, i), static_cast<std::uint16_t>(row - first_row)};
      }
  }
  *strip_starts = num_done;
}

}  // namespace edgert
