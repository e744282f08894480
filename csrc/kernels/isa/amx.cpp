// AMX: products with several tokens on the matrix unit; the rest is that of the level below.
#include <immintrin.h>

#include "kernels/isa/tables.h"

namespace edgert::amx {
namespace {
#include "kernels/simd/amx.h"
//
#include "formats/list.h"
//
#include "kernels/generic/functions.inl.h"
//
#include "kernels/generic/linear.inl.h"
//
#include "kernels/generic/tile_values.inl.h"
//
#include "kernels/generic/linear_tiles.inl.h"
//
#include "kernels/generic/linear_float.inl.h"
//
#include "kernels/generic/linear_bf16.inl.h"

constexpr KernelTable amx_table() {
  KernelTable table = tile_table("amx");
  set_bf16_tiles<ValuesF32, ValuesF16, ValuesBF16>(table);
  return table;
}
}  // namespace

constinit const KernelTable kTable = amx_table();

}  // namespace edgert::amx
