// AVX-512 without VNNI.
#include <immintrin.h>

#include "kernels/isa/tables.h"

namespace edgert::avx512 {
namespace {
#include "kernels/simd/avx512.h"
//
#include "kernels/generic/kernels.inl.h"
}  // namespace

constinit const KernelTable kTable = full_table("avx512");

}  // namespace edgert::avx512
