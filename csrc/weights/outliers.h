// Outliers as a file holds them, and as kernels read them.
#pragma once
#include <cstdint>

#include "weights/request.h"

namespace edgert {

// Puts the outliers of a weight into `strip_starts` (one for each strip, and the end) and `outliers`, where the rows of
// a strip take turns. starts, columns, values: the bytes of request.outliers. Kernels take an input's column without a
// check: every number is looked at here. Throws std::invalid_argument.
void place_outliers(const WeightRequest& request, const std::uint8_t* starts, const std::uint8_t* columns,
                    const std::uint8_t* values, std::uint32_t* strip_starts, Outlier* outliers);

}  // namespace edgert
