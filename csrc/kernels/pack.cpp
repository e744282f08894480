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

// The 64 codes of group g of a row, and the scales of the blocks that begin there.
template <class F>
inline void decode_row(const std::uint8_t* row, int cols, std::int64_t g, int lane, std::uint8_t* codes,
                       std::uint8_t* const scales[]) {
  constexpr int kStep = F::kBlockColumns < kGroupColumns ? F::kBlockColumns : kGroupColumns;
  for (int i = 0; i < kGroupColumns; i += kStep) {
    const std::int64_t column = g * kGroupColumns + i, index = column / F::kBlockColumns;
    if (column >= cols) break;
    const auto& block = reinterpret_cast<const typename F::Block*>(row)[index];
    const int first = static_cast<int>(column % F::kBlockColumns);
    F::decode(block, first, codes + i);
    if (first == 0) F::put_scales(block, static_cast<int>(index), lane, scales);
  }
}

typedef std::uint32_t Quads4 __attribute__((vector_size(16)));
#if defined(__clang__)
#define EDGERT_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define EDGERT_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, Quads4{__VA_ARGS__})
#endif

// Four quads of four rows, turned over.
inline void put_quads(const std::uint8_t (&rows)[4][kGroupColumns], int quad, int lane, GroupCodes& codes) {
  Quads4 r[4];
  for (int i = 0; i < 4; ++i) std::memcpy(&r[i], rows[i] + 4 * quad, 16);
  const Quads4 low01 = EDGERT_SHUFFLE(r[0], r[1], 0, 4, 1, 5), high01 = EDGERT_SHUFFLE(r[0], r[1], 2, 6, 3, 7);
  const Quads4 low23 = EDGERT_SHUFFLE(r[2], r[3], 0, 4, 1, 5), high23 = EDGERT_SHUFFLE(r[2], r[3], 2, 6, 3, 7);
  const Quads4 turned[4] = {EDGERT_SHUFFLE(low01, low23, 0, 1, 4, 5), EDGERT_SHUFFLE(low01, low23, 2, 3, 6, 7),
                            EDGERT_SHUFFLE(high01, high23, 0, 1, 4, 5), EDGERT_SHUFFLE(high01, high23, 2, 3, 6, 7)};
  for (int i = 0; i < 4; ++i) std::memcpy(&codes[quad + i][lane], &turned[i], 16);
}

template <class F>
void pack_rows(const std::uint8_t* const row_data[kStripRows], int cols, int strip, std::uint8_t* const parts[]) {
  const std::int64_t groups = (cols + kGroupColumns - 1) / kGroupColumns;
  const StripParts<F> out(parts, strip, groups);
  // Sixteen streams of one row each are too many for the hardware to see: the same place of the next strip, which
  // follows this one wherever it has been read from a file.
  constexpr std::int64_t kBlockBytes = sizeof(typename F::Block);
  const std::int64_t ahead = kStripRows * (cols / F::kBlockColumns) * kBlockBytes;
  for (std::int64_t g = 0; g < groups; ++g) {
    GroupCodes codes;
    for (int lane = 0; lane < kStripRows; lane += 4) {
      std::uint8_t rows[4][kGroupColumns] = {};
      for (int i = 0; i < 4; ++i) {
        const std::uint8_t* row = row_data[lane + i];
        if (row == nullptr) continue;
        decode_row<F>(row, cols, g, lane + i, rows[i], out.scales);
        __builtin_prefetch(row + ahead + g * kGroupColumns * kBlockBytes / F::kBlockColumns, 0, 2);
      }
      for (int quad = 0; quad < kGroupColumns / 4; quad += 4) put_quads(rows, quad, lane, codes);
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
      for (int row = 0; row < kStripRows; ++row) codes[first / 4][row] = quad[row] & mask;
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
