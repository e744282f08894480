// AVX-512 VNNI: only the matrix products of quantised weights differ from the level below.
#include <immintrin.h>

#include "kernels/isa/tables.h"

namespace edgert::avx512vnni {
namespace {
#include "kernels/simd/avx512vnni.h"
//
#include "kernels/generic/quantized.inl.h"
}  // namespace

constinit const KernelTable kTable = quantized_table("avx512vnni");

}  // namespace edgert::avx512vnni
