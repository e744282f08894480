// aarch64 with sdot: only the matrix products of quantised weights differ from the level below.
#include <arm_neon.h>

#include "kernels/isa/tables.h"

namespace edgert::neon_dotprod {
namespace {
#include "kernels/simd/neon_dotprod.h"
//
#include "kernels/generic/quantized.inl.h"
}  // namespace

constinit const KernelTable kTable = quantized_table("neon_dotprod");

}  // namespace edgert::neon_dotprod
