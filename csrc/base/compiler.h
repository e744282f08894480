// What compilers spell differently, or must be told, and kernels need.
#pragma once

// Before a loop with a constant count: unroll it whole, so that arrays of vectors become registers.
#if defined(__clang__)
#define EDGERT_UNROLL _Pragma("clang loop unroll(full)")
#else
#define EDGERT_UNROLL _Pragma("GCC unroll 64")
#endif

// Before a kernel: its loops shall hold no calls. gcc takes much of a long one for functions, with vectors over the
// stack.
#ifndef EDGERT_FLATTEN
#define EDGERT_FLATTEN [[gnu::flatten]]
#endif
