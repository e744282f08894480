#include "formats/pack.h"

#include <cstring>

#include "base/compiler.h"
#include "base/float16.h"
#include "kernels/kernel_table.h"

namespace edgert {
namespace {
#include "kernels/simd/scalar.h"
//
#include "formats/list.h"
//
#include "codes/neuron.h"

// Where the parts of one strip begin.
template <class F>
struct StripParts {
  std::uint8_t* scales[F::Scales::kNumParts];
  std::uint8_t* codes[F::Codes::kNumParts];

  // Scales become 0: those of rows and columns beyond the matrix stay so.
  StripParts(std::uint8_t* const parts[], int strip, std::int64_t groups) {
    using Codes = typename F::Codes;
    using Scales = typename F::Scales;
    for (int i = 0; i < Scales::kNumParts; ++i) {
      const std::int64_t every = Scales::kPartGroups[i],
                         num_bytes = (groups + every - 1) / every * Scales::kPartBytes[i];
      scales[i] = parts[i] + strip * num_bytes;
      std::memset(scales[i], 0, static_cast<std::size_t>(num_bytes));
    }
    for (int i = 0; i < Codes::kNumParts; ++i) {
      codes[i] = parts[Scales::kNumParts + i] + strip * strip_part_bytes<Codes>(i, groups);
    }
  }
};

template <class Block>
Block read_block(const std::uint8_t* row, std::int64_t index) {
  Block block;
  std::memcpy(&block, row + index * static_cast<std::int64_t>(sizeof(block)), sizeof(block));
  return block;
}

template <class F>
void pack_rows(const std::uint8_t* const row_data[kStripRows], int cols, int strip, std::uint8_t* const parts[]) {
  constexpr int kStep = F::kBlockColumns < kGroupColumns ? F::kBlockColumns : kGroupColumns;
  const std::int64_t groups = (cols + kGroupColumns - 1) / kGroupColumns;
  const StripParts<F> out(parts, strip, groups);
  for (std::int64_t g = 0; g < groups; ++g) {
    GroupCodes codes = {};
    for (int lane = 0; lane < kStripRows; ++lane) {
      for (int i = 0; i < kGroupColumns && row_data[lane] != nullptr; i += kStep) {
        const std::int64_t column = g * kGroupColumns + i, index = column / F::kBlockColumns;
        if (column >= cols) break;
        const auto block = read_block<typename F::Block>(row_data[lane], index);
        const int first = static_cast<int>(column % F::kBlockColumns);
        F::decode(block, first, codes[lane] + i);
        if (first == 0) F::put_scales(block, static_cast<int>(index), lane, out.scales);
      }
    }
    F::Codes::put(out.codes, g, codes);
  }
}

template <class F>
void pack_group(int bits, const std::uint8_t* records, std::int64_t record_bytes, int num_columns, std::int64_t group,
                std::int64_t strips, std::int64_t groups, std::uint8_t* const parts[]) {
  using Codes = typename F::Codes;
  for (std::int64_t strip = 0; strip < strips; ++strip) {
    GroupCodes codes = {};
    for (int first = 0; first < num_columns; first += 4) {
      const std::uint8_t* columns[4];
      for (int i = 0; i < 4; ++i) columns[i] = records + (first + i < num_columns ? first + i : first) * record_bytes;
      std::uint32_t quad[kStripRows];
      unpack_neurons(columns, strip * 2 * bits, bits, bits - Codes::kCodeBits, quad);
      const std::uint32_t mask = num_columns - first < 4 ? (1u << (8 * (num_columns - first))) - 1 : ~0u;
      for (int row = 0; row < kStripRows; ++row) {
        const std::uint32_t four = quad[row] & mask;
        std::memcpy(codes[row] + first, &four, 4);
      }
    }
    std::uint8_t* out[Codes::kNumParts];
    for (int i = 0; i < Codes::kNumParts; ++i)
      out[i] = parts[F::Scales::kNumParts + i] + strip * strip_part_bytes<Codes>(i, groups);
    Codes::put(out, group, codes);
  }
}

template <class... Formats>
void pack_any(Format format, const std::uint8_t* const row_data[], int cols, int strip, std::uint8_t* const parts[],
              FormatList<Formats...>) {
  const auto pack_if = [&]<class F>(F*) {
    if (F::kFormat == format) pack_rows<F>(row_data, cols, strip, parts);
  };
  (pack_if(static_cast<Formats*>(nullptr)), ...);
}

}  // namespace

void pack_strip(Format format, const std::uint8_t* const row_data[16], int cols, int strip,
                std::uint8_t* const parts[kMaxParts]) {
  pack_any(format, row_data, cols, strip, parts, GgmlFormats{});
}

void pack_neurons(Format format, int bits, const std::uint8_t* records, std::int64_t record_bytes, int num_columns,
                  std::int64_t group, std::int64_t rows, std::int64_t cols, std::uint8_t* const parts[kMaxParts]) {
  const std::int64_t strips = (rows + kStripRows - 1) / kStripRows, groups = (cols + kGroupColumns - 1) / kGroupColumns;
  const auto pack_if = [&]<class F>(F*) {
    if constexpr (requires { F::Codes::kCodeBits; }) {
      if (F::kFormat == format) pack_group<F>(bits, records, record_bytes, num_columns, group, strips, groups, parts);
    }
  };
  const auto pack_one_of = [&]<class... Formats>(FormatList<Formats...>) {
    (pack_if(static_cast<Formats*>(nullptr)), ...);
  };
  pack_one_of(QuantizedFormats{});
}

}  // namespace edgert
