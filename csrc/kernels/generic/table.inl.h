// The table of one instruction set.

template <class... Formats>
static constexpr void set_quantized(KernelTable& table, FormatList<Formats...>) {
  ((table.linear[static_cast<int>(Formats::kFormat)] = linear_quantized<Formats>), ...);
}

template <class... Values>
static constexpr void set_float(KernelTable& table) {
  ((table.linear[static_cast<int>(Values::kFormat)] = linear_float<Values>), ...);
  ((table.dequantize_row[static_cast<int>(Values::kFormat)] = dequantize_float<Values>), ...);
}

static constexpr void set_vectors(KernelTable& table) {
  table.quantize = quantize;
  table.rms_norm = rms_norm;
  table.rope = rope;
  table.add = add_vectors;
  table.silu_mul = silu_mul;
  table.relu2 = relu2;
  table.scale = scale;
  table.add_scaled = add_scaled;
  table.softmax = softmax;
  table.max = maximum;
  table.log_sum_exp = log_sum_exp;
  table.store_k = store_k;
  table.store_v = store_v;
  table.attention = attention;
}

static constexpr KernelTable full_table(const char* name) {
  KernelTable table{};
  table.name = name;
  set_quantized(table, QuantizedFormats{});
  set_float<ValuesF32, ValuesF16, ValuesBF16>(table);
  set_vectors(table);
  return table;
}
