// Every kernel, once. Included inside the namespace of an instruction set, after its simd/<isa>.h.
#include "kernels/generic/quantized.inl.h"
//
#include "kernels/generic/functions.inl.h"
//
#include "kernels/generic/elementwise.inl.h"
//
#include "kernels/generic/quantize.inl.h"
//
#include "kernels/generic/attention.inl.h"
#include "kernels/generic/linear_float.inl.h"
#include "kernels/generic/multiply_add.inl.h"
#include "kernels/generic/read_memory.inl.h"

template <class... Values>
static constexpr void set_float(KernelTable& table) {
  ((table.linear[static_cast<int>(Values::kFormat)] = LinearKernels{{{"float", linear_float<Values>, 1, kAnyTokens}}}),
   ...);
  ((table.dequantize_row[static_cast<int>(Values::kFormat)] = dequantize_float<Values>), ...);
}

static constexpr KernelTable full_table(const char* name) {
  KernelTable table = quantized_table(name);
  set_float<ValuesF32, ValuesF16, ValuesBF16>(table);
  table.quantize = quantize;
  table.build_tables = build_tables;
  table.rms_norm = rms_norm;
  table.rope = rope;
  table.add = add_vectors;
  table.silu_mul = silu_mul;
  table.gelu_mul = gelu_mul;
  table.relu2 = relu2;
  table.scale = scale;
  table.soft_cap = soft_cap;
  table.add_scaled = add_scaled;
  table.softmax = softmax;
  table.max = maximum;
  table.exp_shifted = exp_shifted;
  table.log_sum_exp = log_sum_exp;
  table.store_k = store_k;
  table.store_v = store_v;
  table.attention = attention;
  table.merge_attention = merge_attention;
  table.read_memory = read_memory;
  table.multiply_add = multiply_add;
  return table;
}
