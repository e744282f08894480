// AMX: products with several tokens on the matrix unit; the rest is that of the level below.
#include <immintrin.h>

#include "kernels/isa/tables.h"

namespace edgert::amx {
namespace {
#include "kernels/simd/amx.h"
//
#include "formats/list.h"
//
#include "kernels/generic/linear.inl.h"
//
#include "kernels/generic/linear_tiles.inl.h"
}  // namespace

constinit const KernelTable kTable = tile_table("amx");

}  // namespace edgert::amx
