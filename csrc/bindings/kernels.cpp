// The kernels one by one, for tests: arrays in, arrays out, at a named instruction set.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "formats/pack.h"
#include "graph/linear_choice.h"
#include "graph/linear_timer.h"
#include "kernels/single.h"

namespace py = pybind11;

namespace edgert {
namespace {

template <class T>
using Array = py::array_t<T, py::array::c_style>;
using Floats = Array<float>;
using ByteArray = Array<std::uint8_t>;

const KernelTable& table_of(const std::string& isa) {
  const KernelTable* table = kernel_table(isa.c_str());
  if (!table) throw std::invalid_argument("instruction set: found '" + isa + "', expected a supported level");
  return *table;
}

Format format_of(const std::string& name) {
  Format format;
  if (!format_from_name(name.c_str(), format))
    throw std::invalid_argument("format: found '" + name + "', expected a known one");
  return format;
}

void expect(bool holds, const std::string& what, std::int64_t found, std::int64_t expected) {
  if (holds) return;
  throw std::invalid_argument(what + ": found " + std::to_string(found) + ", expected " + std::to_string(expected));
}

std::int64_t matrix_cols(const Floats& x) {
  expect(x.ndim() == 2, "dimensions", x.ndim(), 2);
  return x.shape(1);
}

WeightView view_of(const std::string& format_name, int rows, int cols, const std::vector<ByteArray>& parts) {
  const Format format = format_of(format_name);
  const FormatSpec& s = spec(format);
  expect(rows > 0 && cols > 0, "rows and cols", std::min(rows, cols), 1);
  expect(static_cast<int>(parts.size()) == s.num_parts, "parts", static_cast<std::int64_t>(parts.size()), s.num_parts);
  const std::uint8_t* starts[kMaxParts] = {};
  for (int i = 0; i < s.num_parts; ++i) {
    const std::int64_t num_bytes = part_bytes(format, i, rows, cols);
    expect(parts[i].size() == num_bytes, std::string("bytes of part ") + s.part_names[i], parts[i].size(), num_bytes);
    starts[i] = parts[i].data();
  }
  return view_of_parts(format, rows, cols, starts);
}

// Outliers of each row: (columns, values), columns ascending.
using RowOutliers = std::vector<std::pair<std::vector<std::int32_t>, std::vector<float>>>;

class OutlierTable {
 public:
  OutlierTable(const RowOutliers& rows, WeightView& w) {
    if (rows.empty()) return;
    expect(static_cast<std::int32_t>(rows.size()) == w.rows, "rows of outliers", std::ssize(rows), w.rows);
    expect(w.cols <= kMaxOutlierColumns, "columns beside outliers", w.cols, kMaxOutlierColumns);
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const auto& [columns, values] = rows[row];
      expect(columns.size() == values.size(), "values of outliers", std::ssize(values), std::ssize(columns));
      for (std::size_t i = 0; i < columns.size(); ++i) {
        expect(columns[i] >= 0 && columns[i] < w.cols, "column of an outlier", columns[i], w.cols - 1);
        outliers_.push_back(
            {values[i], static_cast<std::uint16_t>(columns[i]), static_cast<std::uint16_t>(row % kStripRows)});
      }
      if ((row + 1) % kStripRows == 0 || row + 1 == rows.size())
        starts_.push_back(static_cast<std::uint32_t>(outliers_.size()));
    }
    w.outlier_starts = starts_.data();
    w.outliers = outliers_.data();
  }

 private:
  std::vector<std::uint32_t> starts_{0};
  std::vector<Outlier> outliers_;
};

Floats linear(const std::string& isa, const std::string& format, int rows, int cols,
              const std::vector<ByteArray>& parts, const Floats& x, const std::optional<Floats>& bias,
              const RowOutliers& row_outliers, const std::optional<std::string>& kernel) {
  WeightView w = view_of(format, rows, cols, parts);
  const OutlierTable outliers(row_outliers, w);
  expect(matrix_cols(x) == cols, "columns of x", x.shape(1), cols);
  expect(!bias || bias->size() == rows, "bias", bias ? bias->size() : 0, rows);
  Floats y({x.shape(0), py::ssize_t{rows}});
  run_linear(table_of(isa), w, x.data(), static_cast<std::int32_t>(x.shape(0)), bias ? bias->data() : nullptr,
             y.mutable_data(), kernel ? kernel->c_str() : nullptr);
  return y;
}

// The same with codes that lie neuron by neuron, in ranges of groups that begin at `bounds`.
Floats linear_neurons(const std::string& isa, const std::string& format_name, int rows, int cols,
                      const std::vector<ByteArray>& scales, const ByteArray& records, int bits, const Floats& x,
                      const std::optional<Floats>& bias, const RowOutliers& row_outliers,
                      const std::vector<int>& bounds) {
  const KernelTable& table = table_of(isa);
  const Format format = format_of(format_name);
  expect(rows > 0 && cols > 0, "rows and cols", std::min(rows, cols), 1);
  expect(0 < neuron_bits(format) && neuron_bits(format) <= bits && bits <= 8, "bits", bits, neuron_bits(format));
  expect(std::ssize(scales) == num_scale_parts(format), "parts", std::ssize(scales), num_scale_parts(format));
  expect(records.size() == cols * neuron_bytes(bits, rows), "bytes of records", records.size(),
         cols * neuron_bytes(bits, rows));
  expect(matrix_cols(x) == cols, "columns of x", x.shape(1), cols);
  const std::uint8_t* starts[kMaxParts] = {};
  for (std::size_t p = 0; p < scales.size(); ++p) {
    expect(scales[p].size() == part_bytes(format, static_cast<int>(p), rows, cols), "bytes of a part", scales[p].size(),
           part_bytes(format, static_cast<int>(p), rows, cols));
    starts[p] = scales[p].data();
  }
  WeightView w = view_of_parts(format, rows, cols, starts);
  const OutlierTable outliers(row_outliers, w);
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    const std::int32_t last = i + 1 < bounds.size() ? bounds[i + 1] : w.groups;
    expect(0 <= bounds[i] && bounds[i] < last, "bounds", bounds[i], last - 1);
  }
  Floats y({x.shape(0), py::ssize_t{rows}});
  run_neurons(table, w, records.data(), bits, x.data(), static_cast<std::int32_t>(x.shape(0)),
              bias ? bias->data() : nullptr, bounds, y.mutable_data());
  return y;
}

// Weights of one format, distinct, as many as fill num_bytes; the values do not matter but are finite.
class WeightSet {
 public:
  WeightSet(Format format, std::int32_t rows, std::int32_t cols, std::int64_t num_bytes) {
    const FormatSpec& s = spec(format);
    std::int64_t stride = 0;
    std::array<std::int64_t, kMaxParts> offsets{};
    for (int p = 0; p < s.num_parts; ++p) {
      offsets[p] = stride;
      stride += round_up(part_bytes(format, p, rows, cols), 64);
    }
    const std::int64_t count = std::max<std::int64_t>(1, num_bytes / stride);
    memory_ = Memory(static_cast<std::size_t>(count * stride + 8192));
    std::uint32_t bits = 1;
    for (std::size_t i = 0; i < memory_.num_bytes(); ++i) {
      bits = bits * 1664525 + 1013904223;
      memory_.data()[i] = static_cast<std::uint8_t>(0x20 | (bits >> 28));
    }
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint8_t* starts[kMaxParts] = {};
      for (int p = 0; p < s.num_parts; ++p) starts[p] = memory_.data() + i * stride + offsets[p];
      views_.push_back(view_of_parts(format, rows, cols, starts));
    }
  }
  std::span<const WeightView> views() const { return views_; }

 private:
  Memory memory_;
  std::vector<WeightView> views_;
};

using LinearTimes = std::map<std::string, std::vector<double>>;

LinearTimes time_kernels(const std::string& isa, const std::string& format_name, std::int32_t rows, std::int32_t cols,
                         std::int32_t tokens, int threads, std::int64_t num_bytes, int passes) {
  const KernelTable& table = table_of(isa);
  const Format format = format_of(format_name);
  expect(rows > 0 && cols > 0 && tokens > 0 && threads > 0 && passes > 0, "sizes", 0, 1);
  const WeightSet weights(format, rows, cols, num_bytes);
  std::vector<float> values(static_cast<std::size_t>(tokens) * static_cast<std::size_t>(cols));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 37 % 255) - 127.0f;
  const PreparedInput input(table, values.data(), tokens, cols, spec(format).activation_columns);
  const std::int64_t stride = round_up(rows, kStripRows);
  Memory out(static_cast<std::size_t>(tokens * stride) * sizeof(float));
  LinearTimes times;
  for (const LinearKernel& kernel : table.linear[static_cast<int>(format)]) {
    if (!takes(kernel, input.input())) continue;
    times[kernel.name] =
        time_linear(kernel.run, weights.views(), input.input(), {out.as<float>(), stride, nullptr}, threads, passes);
  }
  return times;
}

std::vector<std::string> kernel_names(const std::string& isa) {
  std::vector<std::string> names;
  for (int f = 0; f < kNumFormats; ++f)
    for (int c = 0; c < kNumTokenClasses; ++c)
      for (const LinearCandidate& candidate : linear_candidates(table_of(isa), static_cast<Format>(f), c))
        if (std::find(names.begin(), names.end(), candidate.name) == names.end()) names.push_back(candidate.name);
  return names;
}

std::vector<std::string> rounded_kernel_names(const std::string& isa) {
  std::vector<std::string> names;
  for (const LinearKernels& kernels : table_of(isa).linear)
    for (const LinearKernel& kernel : kernels)
      if (kernel.is_rounded && std::find(names.begin(), names.end(), kernel.name) == names.end())
        names.emplace_back(kernel.name);
  return names;
}

std::pair<std::size_t, bool> judge_passes(const LinearPasses& passes) {
  expect(!passes.empty(), "candidates", 0, 1);
  for (const auto& p : passes) expect(!p.empty(), "passes of a candidate", 0, 1);
  const LinearVerdict verdict = judge(passes);
  return {verdict.index, verdict.is_steady};
}

Floats dequantize(const std::string& isa, const std::string& format, int rows, int cols,
                  const std::vector<ByteArray>& parts, const RowOutliers& row_outliers) {
  WeightView w = view_of(format, rows, cols, parts);
  const OutlierTable outliers(row_outliers, w);
  std::vector<float> values(static_cast<std::size_t>(cols + 15) / 16 * 16);
  Floats y({rows, cols});
  for (int row = 0; row < rows; ++row) {
    table_of(isa).dequantize_row[static_cast<int>(w.format)](w, row, values.data());
    std::copy_n(values.data(), cols, y.mutable_data() + static_cast<std::int64_t>(row) * cols);
  }
  return y;
}

std::vector<ByteArray> pack(const std::string& format_name, const ByteArray& raw, int cols) {
  const Format format = format_of(format_name);
  const FormatSpec& s = spec(format);
  if (s.is_float || s.block_columns == 0)
    throw std::invalid_argument("format: found '" + format_name + "', expected a ggml block format");
  expect(raw.ndim() == 2 && raw.shape(0) > 0, "dimensions of raw", raw.ndim(), 2);
  expect(cols > 0 && cols % s.block_columns == 0, "cols modulo the block", cols % s.block_columns, 0);
  const std::int64_t row_bytes = static_cast<std::int64_t>(cols / s.block_columns) * s.block_bytes, rows = raw.shape(0);
  expect(raw.shape(1) == row_bytes, "bytes of a row", raw.shape(1), row_bytes);
  std::vector<ByteArray> parts;
  std::uint8_t* out[kMaxParts] = {};
  for (int i = 0; i < s.num_parts; ++i) {
    parts.emplace_back(part_bytes(format, i, rows, cols));
    out[i] = parts.back().mutable_data();
  }
  for (std::int64_t strip = 0; strip * kStripRows < rows; ++strip) {
    const std::uint8_t* row_data[kStripRows] = {};
    for (int i = 0; i < kStripRows && strip * kStripRows + i < rows; ++i) {
      row_data[i] = raw.data() + (strip * kStripRows + i) * row_bytes;
    }
    pack_strip(format, row_data, cols, static_cast<int>(strip), out);
  }
  return parts;
}

py::tuple quantize(const std::string& isa, const Floats& x, int scale_columns) {
  expect(scale_columns == 32 || scale_columns == 64, "scale_columns", scale_columns, 64);
  const std::int64_t cols = matrix_cols(x), tokens = x.shape(0), groups = (cols + kGroupColumns - 1) / kGroupColumns;
  const std::int64_t num_codes = groups * kGroupColumns, num_scales = num_codes / scale_columns;
  Array<std::int8_t> codes({tokens, num_codes});
  Floats scales({tokens, num_scales});
  Array<std::int32_t> sums({tokens, groups, std::int64_t{8}});
  for (std::int64_t t = 0; t < tokens; ++t) {
    table_of(isa).quantize(x.data() + t * cols, static_cast<int>(cols), scale_columns,
                           codes.mutable_data() + t * num_codes, kGroupColumns, scales.mutable_data() + t * num_scales,
                           reinterpret_cast<GroupSums*>(sums.mutable_data()) + t * groups);
  }
  return py::make_tuple(codes, scales, sums);
}

py::tuple attention(const std::string& isa, const Floats& q, const Floats& k, const Floats& v, const Array<bool>& mask,
                    float scale, float soft_cap, const std::string& kv_format, bool by_parts) {
  const std::int64_t rows = q.shape(0), head_dim = matrix_cols(q), positions = k.shape(0);
  expect(rows >= 1 && rows <= kMaxAttentionRows, "query rows", rows, kMaxAttentionRows);
  expect(matrix_cols(k) == head_dim && matrix_cols(v) == head_dim, "head_dim of k and v", k.shape(1), head_dim);
  expect(v.shape(0) == positions && mask.size() == rows * positions, "size of mask", mask.size(), rows * positions);
  Floats out({rows, head_dim}), log_sum_exp(rows);
  const AttentionArrays arrays{.format = kv_format_of(kv_format),
                               .rows = static_cast<std::int32_t>(rows),
                               .positions = static_cast<std::int32_t>(positions),
                               .head_dim = static_cast<std::int32_t>(head_dim),
                               .q = q.data(),
                               .k = k.data(),
                               .v = v.data(),
                               .mask = mask.data(),
                               .scale = scale,
                               .soft_cap = soft_cap,
                               .by_parts = by_parts};
  run_attention(table_of(isa), arrays, out.mutable_data(), log_sum_exp.mutable_data());
  return py::make_tuple(out, log_sum_exp);
}

template <class Operation>
Floats elementwise(const Floats& x, Operation operation) {
  Floats y(x.size());
  operation(x.data(), y.mutable_data(), x.size());
  return y;
}

Floats add(const std::string& isa, const Floats& a, const Floats& b) {
  expect(a.size() == b.size(), "size of b", b.size(), a.size());
  return elementwise(a, [&](auto* x, auto* y, auto n) { table_of(isa).add(x, b.data(), y, n); });
}

Floats silu_mul(const std::string& isa, const Floats& gate, const Floats& up) {
  expect(gate.size() == up.size(), "size of up", up.size(), gate.size());
  return elementwise(gate, [&](auto* x, auto* y, auto n) { table_of(isa).silu_mul(x, up.data(), y, n); });
}

Floats gelu_mul(const std::string& isa, const Floats& gate, const Floats& up) {
  expect(gate.size() == up.size(), "size of up", up.size(), gate.size());
  return elementwise(gate, [&](auto* x, auto* y, auto n) { table_of(isa).gelu_mul(x, up.data(), y, n); });
}

Floats add_scaled(const std::string& isa, float factor, const Floats& a, const Floats& b) {
  expect(a.size() == b.size(), "size of b", b.size(), a.size());
  Floats y(b.size());
  std::copy(b.data(), b.data() + b.size(), y.mutable_data());
  table_of(isa).add_scaled(factor, a.data(), y.mutable_data(), y.size());
  return y;
}

Floats rms_norm(const std::string& isa, const Floats& a, const Floats& weight, float eps, float offset) {
  expect(a.size() == weight.size() && a.size() > 0, "size of weight", weight.size(), a.size());
  return elementwise(a, [&](auto* x, auto* y, auto n) {
    table_of(isa).rms_norm(x, weight.data(), offset, eps, static_cast<int>(n), y);
  });
}

Floats rope(const std::string& isa, const Floats& x, const Floats& cos, const Floats& sin) {
  const std::int64_t head_dim = matrix_cols(x), rotary_dim = 2 * cos.size();
  expect(cos.size() == sin.size() && rotary_dim <= head_dim, "size of sin", sin.size(), cos.size());
  Floats y({x.shape(0), head_dim});
  std::copy(x.data(), x.data() + x.size(), y.mutable_data());
  table_of(isa).rope(y.mutable_data(), cos.data(), sin.data(), static_cast<int>(x.shape(0)), static_cast<int>(head_dim),
                     static_cast<int>(rotary_dim));
  return y;
}

}  // namespace

KVFormat kv_format_of(const std::string& name) {
  std::string known;
  for (int i = 0; i < kNumKVFormats; ++i) {
    if (name == kKVFormatNames[i]) return static_cast<KVFormat>(i);
    known += std::string(i > 0 ? ", " : "") + kKVFormatNames[i];
  }
  throw std::invalid_argument("kv_format: found '" + name + "', expected one of: " + known);
}

void init_kernels(py::module_& m) {
  using namespace py::literals;
  m.def(
      "kv_format_names", [] { return std::vector<std::string>(std::begin(kKVFormatNames), std::end(kKVFormatNames)); },
      "Names of the formats that the KV cache may have.");
  m.def(
      "kv_page_bytes",
      [](const std::string& format, std::int64_t head_dim) {
        return 2 * kv_block_bytes(kv_format_of(format), head_dim);
      },
      "format"_a, "head_dim"_a, "Bytes that the keys and values of one KV head take in a page of 64 positions.");
  m.def(
      "format_names",
      [] {
        std::vector<std::string> names;
        for (int f = 0; f < kNumFormats; ++f) names.emplace_back(spec(static_cast<Format>(f)).name);
        return names;
      },
      "Names of the weight formats that the core computes with.");
  m.def(
      "part_bytes",
      [](const std::string& format, std::int64_t rows, std::int64_t cols) {
        std::vector<std::pair<std::string, std::int64_t>> parts;
        const Format f = format_of(format);
        for (int i = 0; i < spec(f).num_parts; ++i)
          parts.emplace_back(spec(f).part_names[i], part_bytes(f, i, rows, cols));
        return parts;
      },
      "format"_a, "rows"_a, "cols"_a, "(name, bytes) of each part of a tensor, in file order.");
  m.def("pack", &pack, "format"_a, "raw"_a.noconvert(), "cols"_a, "ggml blocks [rows, row bytes] to packed parts.");
  m.def("linear_neurons", &linear_neurons, "isa"_a, "format"_a, "rows"_a, "cols"_a, "scales"_a, "records"_a, "bits"_a,
        "x"_a.noconvert(), "bias"_a = py::none(), "outliers"_a = RowOutliers(), "bounds"_a = std::vector<int>{0},
        "linear with codes that lie neuron by neuron, of which only the active ones are read. scales: the parts before "
        "the codes. bounds: where ranges of groups begin, from 0 on.");
  m.def("linear", &linear, "isa"_a, "format"_a, "rows"_a, "cols"_a, "parts"_a, "x"_a.noconvert(), "bias"_a = py::none(),
        "outliers"_a = RowOutliers(), "kernel"_a = py::none(),
        "y [M, rows] of x [M, cols]; x is quantised first where the format asks for it. outliers: (columns, values) of "
        "each row, columns ascending. kernel: the name of the one that multiplies; None: the first of its list.");
  m.def("time_kernels", &time_kernels, "isa"_a, "format"_a, "rows"_a, "cols"_a, "tokens"_a, "threads"_a, "num_bytes"_a,
        "passes"_a, py::call_guard<py::gil_scoped_release>(),
        "Kernel name -> seconds of one product in each pass over num_bytes of distinct weights.");
  m.def("kernel_names", &kernel_names, "isa"_a,
        "Kernels of products that compete at a level: its own by their names, those of lower levels as LEVEL/NAME.");
  m.def("rounded_kernel_names", &rounded_kernel_names, "isa"_a,
        "Kernels of a level that give other bits, and are taken only where they are forced.");
  m.def("judge_passes", &judge_passes, "passes"_a,
        "(index of the candidate to choose, whether to keep that): from seconds by candidate and pass.");
  m.def("dequantize", &dequantize, "isa"_a, "format"_a, "rows"_a, "cols"_a, "parts"_a, "outliers"_a = RowOutliers(),
        "All rows as float32 [rows, cols].");
  m.def("quantize", &quantize, "isa"_a, "x"_a.noconvert(), "scale_columns"_a = 64,
        "(codes, scales, sums of each 64 columns).");
  m.def("attention", &attention, "isa"_a, "q"_a.noconvert(), "k"_a.noconvert(), "v"_a.noconvert(), "mask"_a.noconvert(),
        "scale"_a, "soft_cap"_a, "kv_format"_a, "by_parts"_a = false,
        "(out [rows, head_dim], log_sum_exp [rows]). by_parts: each page by itself, then merged.");
  m.def("rms_norm", &rms_norm, "isa"_a, "x"_a.noconvert(), "weight"_a.noconvert(), "eps"_a, "offset"_a = 0.0f);
  m.def("rope", &rope, "isa"_a, "x"_a.noconvert(), "cos"_a.noconvert(), "sin"_a.noconvert());
  m.def("add", &add, "isa"_a, "a"_a.noconvert(), "b"_a.noconvert());
  m.def("silu_mul", &silu_mul, "isa"_a, "gate"_a.noconvert(), "up"_a.noconvert());
  m.def("gelu_mul", &gelu_mul, "isa"_a, "gate"_a.noconvert(), "up"_a.noconvert());
  m.def("add_scaled", &add_scaled, "isa"_a, "factor"_a, "x"_a.noconvert(), "y"_a.noconvert());
  m.def(
      "relu2",
      [](const std::string& isa, const Floats& a) {
        return elementwise(a, [&](auto* x, auto* y, auto n) { table_of(isa).relu2(x, y, n); });
      },
      "isa"_a, "x"_a.noconvert());
  m.def(
      "scale",
      [](const std::string& isa, const Floats& a, float factor) {
        return elementwise(a, [&](auto* x, auto* y, auto n) { table_of(isa).scale(x, factor, y, n); });
      },
      "isa"_a, "x"_a.noconvert(), "factor"_a);
  m.def(
      "soft_cap",
      [](const std::string& isa, const Floats& a, float cap) {
        return elementwise(a, [&](auto* x, auto* y, auto n) { table_of(isa).soft_cap(x, cap, y, n); });
      },
      "isa"_a, "x"_a.noconvert(), "cap"_a);
  m.def(
      "softmax",
      [](const std::string& isa, const Floats& a) {
        return elementwise(a, [&](auto* x, auto* y, auto n) { table_of(isa).softmax(x, y, static_cast<int>(n)); });
      },
      "isa"_a, "x"_a.noconvert());
  m.def(
      "maximum", [](const std::string& isa, const Floats& a) { return table_of(isa).max(a.data(), a.size()); }, "isa"_a,
      "x"_a.noconvert());
  m.def(
      "log_sum_exp",
      [](const std::string& isa, const Floats& a) {
        const KernelTable& table = table_of(isa);
        return table.log_sum_exp(a.data(), table.max(a.data(), a.size()), a.size());
      },
      "isa"_a, "x"_a.noconvert());
}

}  // namespace edgert
