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

template <class F>
void pack_rows(const std::uint8_t* const row_data[kStripRows], int cols, int strip, std::uint8_t* const parts[]) {
  using Codes = typename F::Codes;
  using Scales = typename F::Scales;
  const std::int64_t groups = (cols + kGroupColumns - 1) / kGroupColumns;
  std::uint8_t *scales[Scales::kNumParts], *codes[Codes::kNumParts];
  for (int i = 0; i < Scales::kNumParts; ++i) {
    const std::int64_t num_bytes =
        (groups + Scales::kPartGroups[i] - 1) / Scales::kPartGroups[i] * Scales::kPartBytes[i];
    scales[i] = parts[i] + strip * num_bytes;
    std::memset(scales[i], 0, static_cast<std::size_t>(num_bytes));
  }
  for (int i = 0; i < Codes::kNumParts; ++i) {
    const std::int64_t num_bytes = groups * Codes::kPartBytes[i];
    codes[i] = parts[Scales::kNumParts + i] + strip * num_bytes;
    std::memset(codes[i], 0, static_cast<std::size_t>(num_bytes));
  }
  for (int lane = 0; lane < kStripRows; ++lane) {
    if (!row_data[lane]) continue;
    for (int index = 0; index * F::kBlockColumns < cols; ++index) {
      typename F::Block block;
      std::memcpy(&block, row_data[lane] + static_cast<std::int64_t>(index) * sizeof(block), sizeof(block));
      F::put_scales(block, index, lane, scales);
      for (int i = 0; i < F::kBlockColumns; ++i) {
        const int column = index * F::kBlockColumns + i;
        Codes::put(codes, column / kGroupColumns, lane, column % kGroupColumns, F::code(block, i));
      }
    }
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

}  // namespace edgert
