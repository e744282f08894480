// The kernels whose speed hangs on the integer dot. Included inside the namespace of an instruction set, after its
// simd/<isa>.h. Alone it makes the table of a level that adds nothing but a better dot.
#include "formats/list.h"
//
#include "kernels/generic/linear.inl.h"
//
#include "kernels/generic/lut.inl.h"
//
#include "kernels/generic/neurons.inl.h"

// The best guess first; what is really the fastest is measured.
template <class F>
constexpr LinearKernels quantized_kernels() {
  constexpr LinearKernel kOne{"dot", linear_one<F, 1>, 1, 1},
      kMany{"dot", linear_by_tiles<F, strip_times_tokens<F>>, 2, kAnyTokens};
  if constexpr (requires { &F::Codes::template lut_dot<false>; }) {
    return {{{"lut", linear_lut<F, false>, 1, 1, true}, kOne, kMany, {"lut8", linear_lut<F, true>, 1, 1, true, true}}};
  } else if constexpr (kWideStrips<F> > 1) {
    return {{kOne, kMany, {"dot_wide", linear_one<F, kWideStrips<F>>, 1, 1}}};
  } else {
    return {{kOne, kMany}};
  }
}

template <class... Formats>
static constexpr void set_quantized(KernelTable& table, FormatList<Formats...>) {
  ((table.linear[static_cast<int>(Formats::kFormat)] = quantized_kernels<Formats>()), ...);
}

template <class F>
constexpr NeuronFunction neuron_function() {
  if constexpr (has_neurons<F>()) {
    return linear_neurons<F>;
  } else {
    return nullptr;
  }
}

template <class... Formats>
static constexpr void set_neurons(KernelTable& table, FormatList<Formats...>) {
  ((table.neurons[static_cast<int>(Formats::kFormat)] = neuron_function<Formats>()), ...);
}

static constexpr KernelTable quantized_table(const char* name) {
  KernelTable table{};
  table.name = name;
  set_quantized(table, QuantizedFormats{});
  set_neurons(table, QuantizedFormats{});
  return table;
}
