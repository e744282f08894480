#include "tests/random_shapes.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

#include "formats/pack.h"
#include "kernels/single.h"
#include "tests/kernel_digest.h"

namespace edgert {
namespace {

struct Shape {
  int rows, cols, tokens, vectors, first_strip, last_strip;
  int fill;                            // every byte of the codes, or -1
  bool is_extreme;                     // every activation is 127 or -127
  bool has_bias, has_outliers, picks;  // picks: tokens read any of the vectors, in any order
};

int up_to(DigestIntegers& integers, int most) {
  return 1 + static_cast<int>((integers.next() >> 33) % static_cast<std::uint64_t>(most));
}

// Small sizes are drawn more often than large ones: they have more edges and cost less.
int mostly_small(DigestIntegers& integers, int most) { return up_to(integers, up_to(integers, most)); }

Shape random_shape(Format format, DigestIntegers& integers) {
  constexpr int kFills[] = {-1, -1, -1, 0x00, 0xff, 0x80, 0x7f, 0x81};
  const int block = std::max(1, spec(format).block_columns);
  Shape s{};
  s.rows = mostly_small(integers, 100);
  s.cols = (mostly_small(integers, 1500) + block - 1) / block * block;
  s.tokens = up_to(integers, 2) == 1 ? up_to(integers, 4) : mostly_small(integers, 40);
  const int strips = (s.rows + kStripRows - 1) / kStripRows;
  s.first_strip = mostly_small(integers, strips) - 1;
  s.last_strip = s.first_strip + up_to(integers, strips - s.first_strip);
  s.fill = kFills[integers.next() % 8];
  s.is_extreme = up_to(integers, 4) == 1;
  s.has_bias = up_to(integers, 2) == 1;
  s.has_outliers = up_to(integers, 3) == 1;
  s.picks = up_to(integers, 3) == 1;
  s.vectors = s.picks ? up_to(integers, 40) : s.tokens;
  return s;
}

// The product of one shape, by any kernel.
class Product {
 public:
  Product(Format format, const Shape& shape, DigestIntegers& integers)
      : shape_(shape),
        dense_(random_weight(format, shape.rows, shape.cols, integers.next(), shape.fill)),
        weight_(*dense_),
        prepared_(*kernel_table("scalar"), activations(integers).data(), shape.vectors, shape.cols,
                  spec(format).activation_columns),
        input_(prepared_.input()) {
    for (int t = 0; t < shape.tokens; ++t) picks_.push_back(up_to(integers, shape.vectors) - 1);
    input_.tokens = shape.tokens;
    if (shape.picks) input_.vector_rows = picks_.data();
    bias_ = integers.values(weight_.strips * kStripRows, -16);
    if (shape.has_outliers) add_outliers(integers);
  }

  const LinearInput& input() const { return input_; }

  std::vector<float> run(LinearFunction function) const {
    constexpr float kUntouched = 12345.0f;
    const std::int64_t stride = std::int64_t{weight_.strips} * kStripRows;
    std::vector<float> y(static_cast<std::size_t>(stride * shape_.tokens), kUntouched);
    const LinearOutput output{y.data(), stride, shape_.has_bias ? bias_.data() : nullptr};
    function(weight_, input_, output, shape_.first_strip, shape_.last_strip);
    return y;
  }

 private:
  // Many rows have none, as in a model.
  void add_outliers(DigestIntegers& integers) {
    for (int strip = 0; strip < weight_.strips; ++strip) {
      const int last = std::min(shape_.rows, (strip + 1) * kStripRows);
      for (int row = strip * kStripRows; row < last; ++row) {
        for (int column = up_to(integers, 2 * shape_.cols) - 1; column < shape_.cols;
             column += up_to(integers, shape_.cols)) {
          outliers_.push_back({integers.values(1, -16)[0], static_cast<std::uint16_t>(column),
                               static_cast<std::uint16_t>(row % kStripRows)});
        }
      }
      outlier_starts_.push_back(static_cast<std::uint32_t>(outliers_.size()));
    }
    weight_.outlier_starts = outlier_starts_.data();
    weight_.outliers = outliers_.data();
  }

  std::vector<float> activations(DigestIntegers& integers) const {
    std::vector<float> x = integers.values(std::int64_t{shape_.vectors} * shape_.cols, -15);
    if (shape_.is_extreme) {
      for (float& value : x) value = value < 0.0f ? -1.0f : 1.0f;
    }
    return x;
  }

  const Shape shape_;
  const std::shared_ptr<const WeightView> dense_;
  WeightView weight_;
  std::vector<std::uint32_t> outlier_starts_{0};
  std::vector<Outlier> outliers_;
  const PreparedInput prepared_;
  LinearInput input_;
  std::vector<std::int32_t> picks_;
  std::vector<float> bias_;
};

void report(Format format, const Shape& s, const KernelTable& table, const LinearKernel& kernel) {
  std::printf(
      "# %s %s differs from scalar: %s, rows %d, cols %d, tokens %d of %d vectors%s, strips %d to %d, fill %d%s%s\n",
      table.name, kernel.name, spec(format).name, s.rows, s.cols, s.tokens, s.vectors, s.picks ? " picked" : "",
      s.first_strip, s.last_strip, s.fill, s.is_extreme ? ", extreme activations" : "",
      s.has_outliers ? ", outliers" : "");
}

// A kernel that rounds is held against scalar's of the same name, where it has one: it too gives one result.
LinearFunction rounded_specification(const LinearKernels& scalar, const char* name) {
  for (const LinearKernel& kernel : scalar) {
    if (kernel.name && std::strcmp(kernel.name, name) == 0) return kernel.run;
  }
  return nullptr;
}

// The product with codes that lie neuron by neuron against the one with the same codes in strips; returns how many
// tables differ.
int compare_neurons(Format format, const Shape& s, const std::vector<const KernelTable*>& tables,
                    DigestIntegers& integers, DigestHash& hash) {
  const int bits = neuron_bits(format);
  const std::int64_t record_bytes = neuron_bytes(bits, s.rows);
  std::vector<std::uint8_t> records = integers.bytes(s.cols * record_bytes);
  if (s.fill >= 0) std::fill(records.begin(), records.end(), static_cast<std::uint8_t>(s.fill));
  const std::shared_ptr<const WeightView> random = random_weight(format, s.rows, s.cols, integers.next(), -1);
  WeightView weight = *random;
  std::vector<std::vector<std::uint8_t>> parts(kMaxParts);
  std::uint8_t* out[kMaxParts] = {};
  for (int p = num_scale_parts(format); p < spec(format).num_parts; ++p) {
    const auto part = static_cast<std::size_t>(p);
    parts[part].resize(static_cast<std::size_t>(part_bytes(format, p, s.rows, s.cols)));
    weight.parts[part] = out[p] = parts[part].data();
  }
  for (int group = 0; group < weight.groups; ++group)
    pack_neurons(format, bits, records.data() + group * kGroupColumns * record_bytes, record_bytes,
                 std::min(kGroupColumns, s.cols - group * kGroupColumns), group, s.rows, s.cols, out);
  std::vector<float> x = integers.values(std::int64_t{s.tokens} * s.cols, -15);
  for (float& value : x) {
    if (s.is_extreme) value = value < 0.0f ? -1.0f : 1.0f;
    if (up_to(integers, 3) > 1) value = 0.0f;
  }
  std::vector<int> bounds{0};
  if (weight.groups > 1) bounds.push_back(up_to(integers, weight.groups - 1));
  std::vector<float> expected(static_cast<std::size_t>(std::int64_t{s.tokens} * s.rows)), found(expected.size());
  run_linear(*kernel_table("scalar"), weight, x.data(), s.tokens, nullptr, expected.data());
  hash.add_floats(expected.data(), std::ssize(expected));
  int num_different = 0;
  for (const KernelTable* table : tables) {
    run_neurons(*table, weight, records.data(), bits, x.data(), s.tokens, nullptr, bounds, found.data());
    if (std::memcmp(found.data(), expected.data(), expected.size() * sizeof(float)) == 0) continue;
    ++num_different;
    report(format, s, *table, {.name = "neurons"});
  }
  return num_different;
}

}  // namespace

int compare_random_shapes(Format format, const std::vector<const KernelTable*>& tables, int num_shapes,
                          std::uint64_t seed, DigestHash& hash) {
  const KernelTable& scalar = *kernel_table("scalar");
  std::vector<const KernelTable*> all = tables;
  all.push_back(&scalar);
  DigestIntegers integers(seed * 1000 + static_cast<std::uint64_t>(format));
  int num_different = 0;
  for (int i = 0; i < num_shapes; ++i) {
    const Shape shape = random_shape(format, integers);
    const Product product(format, shape, integers);
    const std::size_t index = static_cast<std::size_t>(format);
    LinearInput plain = product.input();
    plain.tables = nullptr;  // the specification is the product, not a look-up
    const std::vector<float> expected = product.run(linear_function(scalar.linear[index], plain));
    hash.add_floats(expected.data(), static_cast<std::int64_t>(expected.size()));
    for (const KernelTable* table : all) {
      for (const LinearKernel& kernel : table->linear[index]) {
        if (!fits(kernel, product.input())) continue;
        std::vector<float> asked = expected;
        if (kernel.is_rounded) {
          const LinearFunction specified = rounded_specification(scalar.linear[index], kernel.name);
          if (specified == nullptr) continue;
          asked = product.run(specified);
        }
        const std::vector<float> found = product.run(kernel.run);
        if (std::memcmp(found.data(), asked.data(), asked.size() * sizeof(float)) == 0) continue;
        ++num_different;
        report(format, shape, *table, kernel);
      }
    }
    if (neuron_bits(format) > 0) num_different += compare_neurons(format, shape, all, integers, hash);
  }
  return num_different;
}

}  // namespace edgert
