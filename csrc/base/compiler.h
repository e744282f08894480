// The one thing that compilers spell differently and kernels need.
#pragma once

// Before a loop with a constant count: unroll it whole, so that arrays of vectors become registers.
#if defined(__clang__)
#define EDGERT_UNROLL _Pragma("clang loop unroll(full)")
#else
#define EDGERT_UNROLL _Pragma("GCC unroll 64")
#endif
