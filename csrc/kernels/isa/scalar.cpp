// The specification: plain loops, built for every processor. Everything but the table stays inside this file.
#define EDGERT_FLATTEN  // nothing: it need not be fast, and its loops in one piece take minutes to compile
#include "kernels/isa/tables.h"

namespace edgert::scalar {
namespace {
#include "kernels/simd/scalar.h"
//
#include "kernels/generic/kernels.inl.h"

template <class... Formats>
constexpr void set_dequantize(KernelTable& table, FormatList<Formats...>) {
  ((table.dequantize_row[static_cast<int>(Formats::kFormat)] = dequantize_quantized<Formats>), ...);
}

constexpr KernelTable table_of_all() {
  KernelTable table = full_table("scalar");
  set_dequantize(table, QuantizedFormats{});
  return table;
}
}  // namespace

constinit const KernelTable kTable = table_of_all();

}  // namespace edgert::scalar
