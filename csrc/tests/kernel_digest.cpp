#include "tests/kernel_digest.h"

#include <algorithm>
#include <memory>
#include <string_view>

#include "base/math.h"
#include "formats/pack.h"
#include "kernels/single.h"
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

// Parts whose bytes may all be `fill`: codes, and the sub-scales of every format.
bool is_filled(std::string_view name) {
  constexpr std::string_view kNames[] = {"field", "nibble", "byte", "bits", "trit", "table", "exponent"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames) || name.starts_with("plane") ||
         name.starts_with("sub");
}

// The bits of a byte that a weight may hold: sub-scales of six, and exponents whose powers of two keep products finite.
int valid_bits(Format format, std::string_view part) {
  if (part == "exponent") return 0x7f;
  return (format == Format::q4_k || format == Format::q5_k) && part.starts_with("sub") ? 0x3f : 0xff;
}

struct DigestWeight {
  WeightView view;
  std::vector<std::vector<std::uint8_t>> parts;

  DigestWeight(Format format, int rows, int cols, DigestIntegers integers) {
    const FormatSpec& s = spec(format);
    const std::uint8_t* starts[kMaxParts] = {};
    for (int i = 0; i < s.num_parts; ++i) {
      const std::int64_t num_bytes = part_bytes(format, i, rows, cols);
      const std::string_view part = s.part_names[i];
      const bool is_scale = part == "scale" || part == "superscale" || part == "minimum";
      if (format == Format::f32) {
        const std::vector<float> values = integers.values(num_bytes / 4, -16);
        parts.emplace_back(static_cast<std::size_t>(num_bytes));
        std::memcpy(parts.back().data(), values.data(), static_cast<std::size_t>(num_bytes));
      } else if (s.is_float) {
        parts.push_back(halves(format == Format::bf16 ? Format::p8 : Format::q8_0, num_bytes, integers));
      } else {
        parts.push_back(is_scale ? halves(format, num_bytes, integers) : integers.bytes(num_bytes));
        const int valid = valid_bits(format, part);
        for (std::uint8_t& byte : parts.back()) byte = static_cast<std::uint8_t>(is_scale ? byte : byte & valid);
        // Powers of two from 2^-16 to 2^-1: smaller ones would be lost beside them.
        if (part == "exponent") {
          for (std::uint8_t& exponent : parts.back()) exponent = 112 + exponent % 16;
        }
      }
      starts[i] = parts.back().data();
    }
    view = view_of_parts(format, rows, cols, starts);
  }
};

std::vector<float> token_values(int tokens, int cols, std::uint64_t seed) {
  DigestIntegers integers(seed);
  std::vector<float> x;
  for (int t = 0; t < tokens; ++t) {
    const std::vector<float> row = integers.values(cols, -14 - t);
    x.insert(x.end(), row.begin(), row.end());
  }
  return x;
}

std::uint64_t linear_digest(const KernelTable& table, Format format, int rows, int cols, int tokens) {
  const DigestWeight weight(format, rows, cols, DigestIntegers(static_cast<std::uint64_t>(rows * 7 + cols)));
  const std::vector<float> x = token_values(tokens, cols, 5);
  std::vector<float> y(static_cast<std::size_t>(tokens * rows)), bias;
  for (int i = 0; i < rows; ++i) bias.push_back(static_cast<float>(i) * 0.25f);
  run_linear(table, weight.view, x.data(), tokens, tokens % 2 == 0 ? bias.data() : nullptr, y.data());
  DigestHash hash;
  hash.add_floats(y.data(), tokens * rows);
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
  constexpr int kTokens = 5;
  DigestHash hash;
  for (const int cols : {1, 33, 64, 200, 1024}) {
    const std::vector<float> x = token_values(kTokens, cols, static_cast<std::uint64_t>(cols));
    const PreparedInput p(table, x.data(), kTokens, cols, scale_columns);
    hash.add_bytes(p.input().codes, static_cast<std::size_t>(kTokens * p.input().codes_stride));
    hash.add_floats(p.input().scales, kTokens * p.num_scales());
    hash.add_bytes(p.input().sums, static_cast<std::size_t>(kTokens * p.input().group_stride) * sizeof(GroupSums));
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
  constexpr int kPositions = 180;
  DigestIntegers integers(static_cast<std::uint64_t>(rows * 100 + head_dim));
  const std::vector<float> q = integers.values(rows * head_dim, -15), k = integers.values(kPositions * head_dim, -16),
                           v = integers.values(kPositions * head_dim, -16);
  const auto mask = std::make_unique<bool[]>(static_cast<std::size_t>(rows * kPositions));
  for (int r = 0; r < rows; ++r) {
    for (int p = 0; p < kPositions; ++p) {
      const bool is_hidden_block = r == 1 && p / kPageTokens == 1;
      mask[static_cast<std::size_t>(r * kPositions + p)] = r == 0 || (!is_hidden_block && integers.next() % 3 != 0);
    }
  }
  std::vector<float> out(q.size()), log_sums(static_cast<std::size_t>(rows));
  AttentionArrays arrays{.format = format,
                         .rows = rows,
                         .positions = kPositions,
                         .head_dim = head_dim,
                         .q = q.data(),
                         .k = k.data(),
                         .v = v.data(),
                         .mask = mask.get(),
                         .scale = 0.125f,
                         .soft_cap = soft_cap,
                         .by_parts = false};
  DigestHash hash;
  for (const bool by_parts : {false, true}) {
    arrays.by_parts = by_parts;
    run_attention(table, arrays, out.data(), log_sums.data());
    hash.add_floats(out.data(), rows * head_dim);
    hash.add_floats(log_sums.data(), rows);
  }
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
  add_vector_case(cases, "gelu_mul", [](T t, Const a, Const b, float* y, int n) { t.gelu_mul(a, b, y, n); });
  add_vector_case(cases, "relu2", [](T t, Const a, Const, float* y, int n) { t.relu2(a, y, n); });
  add_vector_case(cases, "scale", [](T t, Const a, Const, float* y, int n) { t.scale(a, 0.3f, y, n); });
  add_vector_case(cases, "soft_cap", [](T t, Const a, Const, float* y, int n) { t.soft_cap(a, 0.7f, y, n); });
  add_vector_case(cases, "add_scaled", [](T t, Const a, Const, float* y, int n) { t.add_scaled(0.3f, a, y, n); });
  add_vector_case(cases, "rms_norm",
                  [](T t, Const a, Const b, float* y, int n) { t.rms_norm(a, b, 1.0f, 1e-5f, n, y); });
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
    for (const int rows : {1, 3, 8, 23}) {
      const float soft_cap = rows == 3 ? 20.0f : 0.0f;
      for (int f = 0; f < kNumKVFormats; ++f) {
        const std::string name =
            std::string("attention.") + kKVFormatNames[f] + "." + std::to_string(head_dim) + "." + std::to_string(rows);
        cases.push_back({name, [=](const KernelTable& t) {
                           return attention_digest(t, static_cast<KVFormat>(f), rows, head_dim, soft_cap);
                         }});
      }
    }
  }
  return cases;
}

std::shared_ptr<const WeightView> random_weight(Format format, int rows, int cols, std::uint64_t seed, int fill) {
  const auto weight = std::make_shared<DigestWeight>(format, rows, cols, DigestIntegers(seed));
  const FormatSpec& s = spec(format);
  for (int i = 0; fill >= 0 && !s.is_float && i < s.num_parts; ++i) {
    std::vector<std::uint8_t>& part = weight->parts[static_cast<std::size_t>(i)];
    const int byte = fill & valid_bits(format, s.part_names[i]);
    if (is_filled(s.part_names[i])) std::fill(part.begin(), part.end(), static_cast<std::uint8_t>(byte));
  }
  return {weight, &weight->view};
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
  for (int f = 0; f < kNumFormats; ++f) {
    const auto format = static_cast<Format>(f);
    const FormatSpec& s = spec(format);
    if (s.is_float || s.block_columns == 0) continue;
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
