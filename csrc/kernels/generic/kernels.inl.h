// Every kernel, once. Included inside the namespace of an instruction set, after its simd/<isa>.h.
#include "formats/list.h"
//
#include "kernels/generic/functions.inl.h"
//
#include "kernels/generic/elementwise.inl.h"
//
#include "kernels/generic/attention.inl.h"
#include "kernels/generic/linear.inl.h"
#include "kernels/generic/linear_float.inl.h"
#include "kernels/generic/quantize.inl.h"
//
#include "kernels/generic/table.inl.h"
