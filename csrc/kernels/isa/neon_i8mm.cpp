// aarch64 with smmla: products with several tokens by two rows and two tokens; the rest is that of the level below.
#include <arm_neon.h>

#include "kernels/isa/tables.h"

namespace edgert::neon_i8mm {
namespace {
#include "kernels/simd/neon_i8mm.h"
//
#include "formats/list.h"
//
#include "kernels/generic/linear.inl.h"
//
#include "kernels/generic/linear_pairs.inl.h"
}  // namespace

constinit const KernelTable kTable = pair_table("neon_i8mm");

}  // namespace edgert::neon_i8mm
