// The kernels whose speed hangs on the integer dot. Included inside the namespace of an instruction set, after its
// simd/<isa>.h. Alone it makes the table of a level that adds nothing but a better dot.
#include "formats/list.h"
//
#include "kernels/generic/linear.inl.h"

template <class... Formats>
static constexpr void set_quantized(KernelTable& table, FormatList<Formats...>) {
  ((table.linear[static_cast<int>(Formats::kFormat)] =
        LinearKernels{{{"dot", linear_one<Formats>, 1, 1}, {"dot", linear_many<Formats>, 2, kAnyTokens}}}),
   ...);
}

static constexpr KernelTable quantized_table(const char* name) {
  KernelTable table{};
  table.name = name;
  set_quantized(table, QuantizedFormats{});
  return table;
}
