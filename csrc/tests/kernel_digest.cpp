#include "tests/kernel_digest.h"

#include <memory>

#include "base/math.h"
#include "base/memory.h"
#include "formats/pack.h"
#include "tests/digest_inputs.h"

namespace edgert {
namespace {

// ---- weights

std::uint16_t scale_bits(Format format, float value) {
  const bool is_bf16 = spec(format).block_columns == 0;
  return is_bf16 ? static_cast<std::uint16_t>(bits_from_float(value) >> 16) : f16_from_float(value);
}

std::vector<std::uint8_t> halves(Format format, std::int64_t num_bytes, DigestIntegers& integers) {
  std::vector<std::uint8_t> out(static_cast<std::size_t>(num_bytes));
  for (std::size_t i = 0; i + 1 < out.size(); i += 2) {
    const std::uint16_t bits = scale_bits(format, integers.value(-20));
    out[i] = static_cast<std::uint8_t>(bits);
    out[i + 1] = static_cast<std::uint8_t>(bits >> 8);
  }
  return out;
}

struct DigestWeight {
  WeightView view;
  std::vector<std::vector<std::uint8_t>> parts;

  DigestWeight(Format format, int rows, int cols, DigestIntegers integers) {
    const FormatSpec& s = spec(format);
    view.format = format;
    view.rows = rows;
    view.cols = cols;
    view.strips = (rows + kStripRows - 1) / kStripRows;
    view.groups = (cols + kGroupColumns - 1) / kGroupColumns;
    view.row_bytes = s.is_float ? static_cast<std::int64_t>(cols) * s.part_bytes[0] : 0;
    for (int i = 0; i < s.num_parts; ++i) {
      const std::int64_t num_bytes = part_bytes(format, i, rows, cols);
      const bool is_scale =
          std::strcmp(s.part_names[i], "scale") == 0 || std::strcmp(s.part_names[i], "superscale") == 0;
      if (format == Format::f32) {
        const std::vector<float> values = integers.values(num_bytes / 4, -16);
        parts.emplace_back(static_cast<std::size_t>(num_bytes));
        std::memcpy(parts.back().data(), values.data(), static_cast<std::size_t>(num_bytes));
      } else if (s.is_float) {
        parts.push_back(halves(format == Format::bf16 ? Format::p8 : Format::q8_0, num_bytes, integers));
      } else {
        parts.push_back(is_scale ? halves(format, num_bytes, integers) : integers.bytes(num_bytes));
      }
      view.parts[i] = parts.back().data();
    }
  }
};

// ---- inputs

struct DigestInput {
  Memory codes, scales, sums, values;
  LinearInput input;
};

std::shared_ptr<DigestInput> make_input(const KernelTable& table, int tokens, int cols, int scale_columns,
                                        DigestIntegers integers) {
  auto made = std::make_shared<DigestInput>();
  LinearInput& x = made->input;
  const std::int64_t groups = (cols + 63) / 64, per_group = scale_columns == 32 ? 2 : 1;
  x.tokens = tokens;
  x.group_stride = groups;
  x.codes_stride = groups * 64;
  x.values_stride = round_up(cols, 16);
  made->codes = Memory(static_cast<std::size_t>(tokens * x.codes_stride));
  made->scales = Memory(static_cast<std::size_t>(tokens * groups * per_group) * 4);
  made->sums = Memory(static_cast<std::size_t>(tokens * groups) * sizeof(GroupSums));
  made->values = Memory(static_cast<std::size_t>(tokens * x.values_stride) * 4);
  for (int t = 0; t < tokens; ++t) {
    const std::vector<float> row = integers.values(cols, -14 - t);
    std::memcpy(made->values.as<float>() + t * x.values_stride, row.data(), row.size() * 4);
    if (scale_columns == 0) continue;
    table.quantize(row.data(), cols, scale_columns, made->codes.as<std::int8_t>() + t * x.codes_stride,
                   made->scales.as<float>() + t * groups * per_group, made->sums.as<GroupSums>() + t * groups);
  }
  x.codes = made->codes.as<std::int8_t>();
  x.scales = made->scales.as<float>();
  x.sums = made->sums.as<GroupSums>();
  x.values = made->values.as<float>();
  return made;
}

std::uint64_t linear_digest(const KernelTable& table, Format format, int rows, int cols, int tokens) {
  const DigestWeight weight(format, rows, cols, DigestIntegers(static_cast<std::uint64_t>(rows * 7 + cols)));
  const auto x = make_input(table, tokens, cols, spec(format).activation_columns, DigestIntegers(5));
  const std::int64_t stride = round_up(rows, 16);
  std::vector<float> y(static_cast<std::size_t>(tokens * stride)), bias(static_cast<std::size_t>(stride), 0.0f);
  for (int i = 0; i < rows; ++i) bias[static_cast<std::size_t>(i)] = static_cast<float>(i) * 0.25f;
  const LinearOutput out{y.data(), stride, tokens % 2 == 0 ? bias.data() : nullptr};
  table.linear[static_cast<int>(format)](weight.view, x->input, out, 0, weight.view.strips);
  DigestHash hash;
  hash.add_floats(y.data(), tokens * stride);
  return hash.value();
}

std::uint64_t dequantize_digest(const KernelTable& table, Format format, int rows, int cols) {
  const DigestWeight weight(format, rows, cols, DigestIntegers(11));
  std::vector<float> y(static_cast<std::size_t>(round_up(cols, 16)));
  DigestHash hash;
  for (int row = 0; row < rows; ++row) {
    table.dequantize_row[static_cast<int>(format)](weight.view, row, y.data());
    hash.add_floats(y.data(), static_cast<std::int64_t>(y.size()));
  }
  return hash.value();
}

std::uint64_t quantize_digest(const KernelTable& table, int scale_columns) {
  DigestHash hash;
  for (const int cols : {1, 33, 64, 200, 1024}) {
    const auto x = make_input(table, 5, cols, scale_columns, DigestIntegers(static_cast<std::uint64_t>(cols)));
    hash.add_bytes(x->codes.data(), static_cast<std::size_t>(5 * x->input.codes_stride));
    hash.add_floats(x->input.scales, 5 * x->input.group_stride * (64 / scale_columns));
    hash.add_bytes(x->input.sums, static_cast<std::size_t>(5 * x->input.group_stride) * sizeof(GroupSums));
  }
  return hash.value();
}

// ---- operations on vectors

template <class Operation>
std::uint64_t vector_digest(Operation operation) {
  DigestHash hash;
  for (const int n : {1, 7, 16, 31, 64, 500}) {
    DigestIntegers integers(static_cast<std::uint64_t>(n));
    std::vector<float> a = integers.values(n, -12), b = integers.values(n, -15), y = integers.values(n, -14);
    operation(a.data(), b.data(), y.data(), n);
    hash.add_floats(y.data(), n);
  }
  return hash.value();
}

std::uint64_t rope_digest(const KernelTable& table) {
  DigestHash hash;
  for (const int rotary_dim : {2, 24, 64, 100}) {
    DigestIntegers integers(3);
    std::vector<float> x = integers.values(3 * 128, -15), cos(64), sin(64);
    for (int i = 0; i < 64; ++i) {
      cos[static_cast<std::size_t>(i)] = static_cast<float>(math::cos(i * 0.37));
      sin[static_cast<std::size_t>(i)] = static_cast<float>(math::sin(i * 0.37));
    }
    table.rope(x.data(), cos.data(), sin.data(), 3, 128, rotary_dim);
    hash.add_floats(x.data(), 3 * 128);
  }
  return hash.value();
}

// ---- attention

std::uint64_t attention_digest(const KernelTable& table, KVFormat format, int rows, int head_dim, float soft_cap) {
  constexpr int kBlocks = 3;
  DigestIntegers integers(static_cast<std::uint64_t>(rows * 100 + head_dim));
  const std::size_t block_bytes = static_cast<std::size_t>(kPageTokens) * static_cast<std::size_t>(head_dim) * 4;
  Memory pages(2 * kBlocks * block_bytes);
  std::vector<KVBlock> blocks;
  std::vector<std::uint64_t> masks;
  for (std::size_t b = 0; b < kBlocks; ++b) {
    std::uint8_t *k = pages.data() + 2 * b * block_bytes, *v = k + block_bytes;
    blocks.push_back({k, v});
    for (int slot = 0; slot < kPageTokens; ++slot) {
      table.store_k(format, integers.values(head_dim, -16).data(), head_dim, slot, k);
      table.store_v(format, integers.values(head_dim, -16).data(), head_dim, slot, v);
    }
    for (int r = 0; r < rows; ++r) masks.push_back(r == 0 ? ~0ull : r == 1 && b == 1 ? 0 : integers.next() | (b == 2));
  }
  std::vector<std::vector<float>> q, out;
  for (int r = 0; r < rows; ++r) {
    q.push_back(integers.values(head_dim, -15));
    out.emplace_back(static_cast<std::size_t>(head_dim));
  }
  float log_sums[kMaxAttentionRows];
  AttentionTask task{};
  task.format = format;
  task.head_dim = head_dim;
  task.scale = 0.125f;
  task.soft_cap = soft_cap;
  task.num_rows = rows;
  task.num_blocks = kBlocks;
  task.log_sum_exp = log_sums;
  task.blocks = blocks.data();
  task.masks = masks.data();
  for (int r = 0; r < rows; ++r) {
    task.q[r] = q[static_cast<std::size_t>(r)].data();
    task.out[r] = out[static_cast<std::size_t>(r)].data();
  }
  table.attention(task);
  DigestHash hash;
  hash.add_bytes(pages.data(), 2 * kBlocks * block_bytes);
  for (const std::vector<float>& row : out) hash.add_floats(row.data(), head_dim);
  hash.add_floats(log_sums, rows);
  return hash.value();
}

void add_linear_cases(std::vector<DigestCase>& cases) {
  for (int f = 0; f < kNumFormats; ++f) {
    const auto format = static_cast<Format>(f);
    const std::string name = spec(format).name;
    const int cols = spec(format).block_columns == 256 ? 1280 : spec(format).block_columns == 32 ? 1184 : 1171;
    for (const int tokens : {1, 2, 7, 20}) {
      cases.push_back({"linear." + name + "." + std::to_string(tokens),
                       [=](const KernelTable& table) { return linear_digest(table, format, 45, cols, tokens); }});
    }
    cases.push_back(
        {"dequantize_row." + name, [=](const KernelTable& t) { return dequantize_digest(t, format, 19, cols); }});
  }
}

template <class Operation>
void add_vector_case(std::vector<DigestCase>& cases, const char* name, Operation operation) {
  cases.push_back({name, [=](const KernelTable& t) {
                     return vector_digest(
                         [&](const float* a, const float* b, float* y, int n) { operation(t, a, b, y, n); });
                   }});
}

using Const = const float*;

void add_vector_cases(std::vector<DigestCase>& cases) {
  using T = const KernelTable&;
  add_vector_case(cases, "add", [](T t, Const a, Const b, float* y, int n) { t.add(a, b, y, n); });
  add_vector_case(cases, "silu_mul", [](T t, Const a, Const b, float* y, int n) { t.silu_mul(a, b, y, n); });
  add_vector_case(cases, "relu2", [](T t, Const a, Const, float* y, int n) { t.relu2(a, y, n); });
  add_vector_case(cases, "scale", [](T t, Const a, Const, float* y, int n) { t.scale(a, 0.3f, y, n); });
  add_vector_case(cases, "add_scaled", [](T t, Const a, Const, float* y, int n) { t.add_scaled(0.3f, a, y, n); });
  add_vector_case(cases, "rms_norm", [](T t, Const a, Const b, float* y, int n) { t.rms_norm(a, b, 1e-5f, n, y); });
  add_vector_case(cases, "softmax", [](T t, Const a, Const, float* y, int n) { t.softmax(a, y, n); });
  add_vector_case(cases, "max", [](T t, Const a, Const, float* y, int n) { y[0] = t.max(a, n); });
  add_vector_case(cases, "log_sum_exp",
                  [](T t, Const a, Const, float* y, int n) { y[0] = t.log_sum_exp(a, t.max(a, n), n); });
}

}  // namespace

std::vector<DigestCase> kernel_digest_cases() {
  std::vector<DigestCase> cases;
  add_linear_cases(cases);
  for (const int columns : {32, 64}) {
    cases.push_back(
        {"quantize." + std::to_string(columns), [=](const KernelTable& t) { return quantize_digest(t, columns); }});
  }
  add_vector_cases(cases);
  cases.push_back({"rope", rope_digest});
  for (const int head_dim : {24, 64, 80, 128}) {
    for (const int rows : {1, 3, 8}) {
      const std::string name = "." + std::to_string(head_dim) + "." + std::to_string(rows);
      const float soft_cap = rows == 3 ? 20.0f : 0.0f;
      cases.push_back({"attention.f32" + name, [=](const KernelTable& t) {
                         return attention_digest(t, KVFormat::f32, rows, head_dim, soft_cap);
                       }});
      cases.push_back({"attention.f16" + name, [=](const KernelTable& t) {
                         return attention_digest(t, KVFormat::f16, rows, head_dim, soft_cap);
                       }});
    }
  }
  return cases;
}

std::uint64_t math_digest() {
  DigestHash hash;
  DigestIntegers integers(17);
  for (int i = 0; i < 20000; ++i) {
    const double x = integers.value(i % 24 - 16), positive = (x < 0 ? -x : x) + 1e-3;
    for (const double y :
         {math::sin(x), math::cos(x), math::exp(x / 1024), math::log(positive), math::pow(positive, 0.37)}) {
      std::uint64_t bits;
      std::memcpy(&bits, &y, 8);
      hash.add(bits);
    }
  }
  return hash.value();
}

std::uint64_t pack_digest() {
  DigestHash hash;
  for (const Format format : {Format::q8_0, Format::q4_0, Format::q4_k, Format::q6_k}) {
    const FormatSpec& s = spec(format);
    constexpr int kRows = 21, kCols = 512;
    const std::int64_t row_bytes = static_cast<std::int64_t>(kCols / s.block_columns) * s.block_bytes;
    const std::vector<std::uint8_t> raw = DigestIntegers(23).bytes(kRows * row_bytes);
    std::vector<std::vector<std::uint8_t>> parts;
    std::uint8_t* out[kMaxParts] = {};
    for (int i = 0; i < s.num_parts; ++i) {
      parts.emplace_back(static_cast<std::size_t>(part_bytes(format, i, kRows, kCols)));
      out[i] = parts.back().data();
    }
    for (int strip = 0; strip < 2; ++strip) {
      const std::uint8_t* rows[kStripRows] = {};
      for (int i = 0; i < kStripRows && 16 * strip + i < kRows; ++i)
        rows[i] = raw.data() + (16 * strip + i) * row_bytes;
      pack_strip(format, rows, kCols, strip, out);
    }
    for (const std::vector<std::uint8_t>& part : parts) hash.add_bytes(part.data(), part.size());
  }
  return hash.value();
}

}  // namespace edgert
