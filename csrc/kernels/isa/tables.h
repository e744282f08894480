// The one symbol that each isa/<isa>.cpp exports, and the only headers that it includes outside its namespace.
#pragma once
#include <utility>

#include "base/compiler.h"
#include "base/float16.h"
#include "base/math.h"
#include "kernels/kernel_table.h"

// clang-format off
namespace edgert::scalar { extern const KernelTable kTable; }
namespace edgert::avx2 { extern const KernelTable kTable; }
namespace edgert::avxvnni { extern const KernelTable kTable; }
namespace edgert::avx512 { extern const KernelTable kTable; }
namespace edgert::avx512vnni { extern const KernelTable kTable; }
namespace edgert::amx { extern const KernelTable kTable; }
namespace edgert::neon { extern const KernelTable kTable; }
namespace edgert::neon_dotprod { extern const KernelTable kTable; }
namespace edgert::neon_i8mm { extern const KernelTable kTable; }
// clang-format on
