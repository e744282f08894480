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

// Puts the columns of one group, up to 64, whose codes lie in a record for each column, record_bytes apart, into the
// parts of every strip. bits: of the codes in the records, of which those that the format has are kept. Only for
// formats with neuron_bits; scales and tables are not written.
void pack_neurons(Format format, int bits, const std::uint8_t* records, std::int64_t record_bytes, int num_columns,
                  std::int64_t group, std::int64_t rows, std::int64_t cols, std::uint8_t* const parts[kMaxParts]);

}  // namespace edgert
