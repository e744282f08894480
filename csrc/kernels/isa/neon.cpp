// Every aarch64 processor.
#include <arm_neon.h>

#include "kernels/isa/tables.h"

namespace edgert::neon {
namespace {
#include "kernels/simd/neon.h"
//
#include "kernels/generic/kernels.inl.h"
}  // namespace

constinit const KernelTable kTable = full_table("neon");

}  // namespace edgert::neon
