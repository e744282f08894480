// Turns the bytes of a file's tensor into the layout that the kernels read (ggml blocks -> strips).
#pragma once
#include <cstdint>

#include "formats/format.h"

namespace edgert {

// Packs rows [16 * strip, 16 * strip + 16) of a rows x cols tensor of ggml blocks into every part.
// row_data[i]: the file bytes of row 16 * strip + i (cols / block_columns blocks), or null beyond the last row.
// parts[p]: start of part p of the whole tensor. Only for formats with block_columns > 0 that are not float.
void pack_strip(Format format, const std::uint8_t* const row_data[16], int cols, int strip,
                std::uint8_t* const parts[kMaxParts]);

}  // namespace edgert
