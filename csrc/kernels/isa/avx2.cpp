// AVX2, FMA and F16C.
#include <immintrin.h>

#include "kernels/isa/tables.h"

namespace edgert::avx2 {
namespace {
#include "kernels/simd/avx2.h"
//
#include "kernels/generic/kernels.inl.h"
}  // namespace

constinit const KernelTable kTable = full_table("avx2");

}  // namespace edgert::avx2
