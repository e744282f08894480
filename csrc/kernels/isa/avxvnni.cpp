// AVX2 with VNNI: only the matrix products of quantised weights differ from the level below.
#include <immintrin.h>

#include "kernels/isa/tables.h"

namespace edgert::avxvnni {
namespace {
#include "kernels/simd/avxvnni.h"
//
#include "kernels/generic/quantized.inl.h"
}  // namespace

constinit const KernelTable kTable = quantized_table("avxvnni");

}  // namespace edgert::avxvnni
