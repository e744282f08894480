#include "tests/model_digest.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "graph/runtime.h"
#include "sample/sampler.h"

namespace edgert {
namespace {

constexpr std::int32_t kHidden = 96, kHeads = 6, kKVHeads = 2, kHeadDim = 24, kFfn = 160, kVocab = 130;
constexpr std::int32_t kExperts = 5, kTopK = 2, kExpertFfn = 72, kPromptTokens = 90, kAnswerTokens = 12;

// xorshift64* (Vigna 2016): integers only, so the weights are the same on every machine.
struct Integers {
  std::uint64_t state = 88172645463325252ull;
  std::uint64_t next() {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 2685821657736338717ull;
  }
};

std::uint64_t mix(std::uint64_t hash, std::uint32_t value) { return (hash ^ value) * 1099511628211ull; }

class ModelFile {
 public:
  ModelFile() {
    const char* folder = std::getenv("TMPDIR");
    path_ = std::string(folder != nullptr ? folder : "/tmp") + "/edgert-digest-XXXXXX";
    descriptor_ = mkstemp(path_.data());
    if (descriptor_ < 0) throw std::runtime_error("cannot write " + path_);
  }
  ~ModelFile() {
    close(descriptor_);
    unlink(path_.c_str());
  }
  const std::string& path() const { return path_; }

  PartAddress append(const std::vector<std::uint8_t>& bytes) {
    const auto length = static_cast<std::int64_t>(bytes.size());
    if (write(descriptor_, bytes.data(), bytes.size()) != static_cast<ssize_t>(length))
      throw std::runtime_error("cannot write " + path_);
    const PartAddress address{0, end_, length};
    end_ += length;
    return address;
  }

 private:
  std::string path_;
  int descriptor_;
  std::int64_t end_ = 0;
};

class Builder {
 public:
  WeightRequest matrix(const std::string& name, Format format, std::int32_t rows, std::int32_t cols) {
    WeightRequest r{.name = name,
                    .format = format,
                    .rows = rows,
                    .cols = cols,
                    .parts = {},
                    .is_packed = false,
                    .unpermute_heads = 0,
                    .outliers = {}};
    const FormatSpec& s = spec(format);
    if (s.is_float) {
      r.parts.push_back(file.append(halves(rows * std::int64_t{cols}, 0x2c00)));
    } else if (s.block_columns > 0) {
      r.parts.push_back(file.append(blocks(s, rows * std::int64_t{cols} / s.block_columns)));
    } else {
      r.is_packed = true;
      for (int p = 0; p < s.num_parts; ++p)
        r.parts.push_back(file.append(p == 0 ? halves(part_bytes(format, 0, rows, cols) / 2, 0x3c80)
                                             : bytes(part_bytes(format, p, rows, cols))));
      r.outliers = {file.append(counting<std::uint32_t>(rows + 1, 1, rows + 1)),
                    file.append(counting<std::uint16_t>(rows, 7, cols)), file.append(halves(rows, 0x3400))};
    }
    return r;
  }
  WeightRequest vector(const std::string& name, std::int32_t length) {
    return {.name = name,
            .format = Format::f16,
            .rows = length,
            .cols = 0,
            .parts = {file.append(halves(length, 0x3800))},
            .is_packed = false,
            .unpermute_heads = 0,
            .outliers = {}};
  }

  ModelFile file;

 private:
  std::vector<std::uint8_t> bytes(std::int64_t n) {
    std::vector<std::uint8_t> out(static_cast<std::size_t>(n));
    for (auto& b : out) b = static_cast<std::uint8_t>(integers_.next() >> 56);
    return out;
  }
  // 16-bit floats near the one whose bits are `base`, of either sign.
  std::vector<std::uint8_t> halves(std::int64_t n, std::uint16_t base) {
    std::vector<std::uint8_t> out;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint64_t x = integers_.next();
      const auto bits = static_cast<std::uint16_t>(base + (x >> 40 & 0x1ff) + (x >> 63 << 15));
      out.push_back(static_cast<std::uint8_t>(bits));
      out.push_back(static_cast<std::uint8_t>(bits >> 8));
    }
    return out;
  }
  // 0, step, 2 step and so on, each modulo `limit`, as the bytes of a T.
  template <class T>
  static std::vector<std::uint8_t> counting(std::int64_t n, std::int64_t step, std::int64_t limit) {
    std::vector<std::uint8_t> out;
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::size_t b = 0; b < sizeof(T); ++b) out.push_back(static_cast<std::uint8_t>(i * step % limit >> (8 * b)));
    }
    return out;
  }
  // q8_0 and q4_0: a 16-bit scale, then codes.
  std::vector<std::uint8_t> blocks(const FormatSpec& s, std::int64_t n) {
    std::vector<std::uint8_t> out;
    for (std::int64_t i = 0; i < n; ++i) {
      const auto scale = halves(1, s.block_bytes > 20 ? 0x1400 : 0x2400), codes = bytes(s.block_bytes - 2);
      out.insert(out.end(), scale.begin(), scale.end());
      out.insert(out.end(), codes.begin(), codes.end());
    }
    return out;
  }
  Integers integers_;
};

class Model {
 public:
  Model() : store(std::make_shared<WeightStore>()) {
    store->add_file(builder_.file.path());
    graph.ropes.push_back({.head_dim = kHeadDim,
                           .rotary_dim = kHeadDim,
                           .theta = 10000.0,
                           .max_position_embeddings = 256,
                           .type = "default",
                           .scalars = {},
                           .lists = {}});
    std::int32_t h = add(Op::embed, {}, {matrix("embed", Format::f16, kVocab, kHidden)}, kHidden);
    h = add(Op::scale, {h}, {}, kHidden, {.scale = 1.7f});
    for (std::int32_t layer = 0; layer < 2; ++layer) {
      h = add(Op::add, {h, attention(layer, norm(h))}, {}, kHidden);
      h = add(Op::add, {h, layer == 0 ? dense(norm(h)) : experts(norm(h))}, {}, kHidden);
    }
    h = norm(h);  // a statement of its own: compilers differ in which argument they evaluate first
    h = add(Op::linear, {h}, {matrix("head", Format::p3, kVocab, kHidden)}, kVocab);
    graph.output = add(Op::soft_cap, {h}, {}, kVocab, {.soft_cap = 9.0f});
    store->load(1, nullptr);
  }

  Graph graph;
  std::shared_ptr<WeightStore> store;

 private:
  WeightId matrix(const std::string& name, Format format, std::int32_t rows, std::int32_t cols) {
    return request(builder_.matrix(name + std::to_string(count_++), format, rows, cols));
  }
  WeightId vector(const std::string& name, std::int32_t length) {
    return request(builder_.vector(name + std::to_string(count_++), length));
  }
  // Checked against the file as it is now: it is opened again for each weight, because it grows.
  WeightId request(WeightRequest r) {
    const std::int32_t index = store->add_file(builder_.file.path());
    for (PartAddress& part : r.parts) part.file = index;
    for (PartAddress& part : r.outliers) part.file = index;
    return store->add(r);
  }
  std::int32_t add(Op op, std::vector<std::int32_t> inputs, std::vector<WeightId> weights, std::int32_t width,
                   NodeAttributes a = {}) {
    graph.nodes.push_back({op, std::move(inputs), std::move(weights), a, width});
    return static_cast<std::int32_t>(graph.nodes.size()) - 1;
  }
  std::int32_t norm(std::int32_t x) {
    return add(Op::rms_norm, {x}, {vector("norm", kHidden)}, kHidden, {.eps = 1e-5f, .weight_offset = 1.0f});
  }
  std::int32_t linear(std::int32_t x, Format format, std::int32_t rows) {
    return add(Op::linear, {x}, {matrix("linear", format, rows, graph.nodes[static_cast<std::size_t>(x)].width)}, rows);
  }
  std::int32_t attention(std::int32_t layer, std::int32_t x) {
    const std::int32_t q =
        add(Op::rope, {linear(x, Format::q8_0, kHeads * kHeadDim)}, {}, kHeads * kHeadDim, {.head_dim = kHeadDim});
    const std::int32_t k =
        add(Op::rope, {linear(x, Format::q4_0, kKVHeads * kHeadDim)}, {}, kKVHeads * kHeadDim, {.head_dim = kHeadDim});
    const std::int32_t v = linear(x, Format::p8, kKVHeads * kHeadDim);
    const std::int32_t o = add(Op::attention, {q, k, v}, {}, kHeads * kHeadDim,
                               {.head_dim = kHeadDim,
                                .layer = layer,
                                .num_heads = kHeads,
                                .num_kv_heads = kKVHeads,
                                .window = layer == 0 ? 0 : 70,
                                .sinks = layer == 0 ? 0 : 2,
                                .scale = 0.2f,
                                .soft_cap = layer == 0 ? 0.0f : 30.0f});
    return linear(o, Format::p4, kHidden);
  }
  std::int32_t dense(std::int32_t x) {
    const std::int32_t gate = linear(x, Format::p2, kFfn), up = linear(x, Format::bf16, kFfn);
    return linear(add(Op::gelu_mul, {gate, up}, {}, kFfn), Format::p4, kHidden);
  }
  std::int32_t experts(std::int32_t x) {
    const std::int32_t router = linear(x, Format::f16, kExperts);
    std::vector<WeightId> weights;
    for (std::int32_t e = 0; e < kExperts; ++e) {
      weights.push_back(matrix("gate", Format::p4, kExpertFfn, kHidden));
      weights.push_back(matrix("up", Format::q8_0, kExpertFfn, kHidden));
      weights.push_back(matrix("down", Format::p2, kHidden, kExpertFfn));
    }
    return add(Op::moe, {x, router}, weights, kHidden,
               {.num_experts = kExperts, .top_k = kTopK, .intermediate_size = kExpertFfn, .normalize = true});
  }

  Builder builder_;
  std::int32_t count_ = 0;
};

}  // namespace

std::uint64_t model_digest(const KernelTable& kernels, int num_threads, int span_tokens) {
  const Model model;
  Runtime runtime(model.graph, model.store,
                  {.kernels = &kernels,
                   .num_threads = num_threads,
                   .batch_tokens = kPromptTokens,
                   .context = 256,
                   .kv_format = KVFormat::f16,
                   .kv_budget_bytes = 1 << 22});
  Sampler sampler(
      {.temperature = 0.8, .top_k = 20, .top_p = 0.95, .min_p = 0.01, .logit_bias = {}, .seed = 7, .num_logprobs = 3},
      kernels);
  std::vector<std::int32_t> tokens;
  for (std::int32_t i = 0; i < kPromptTokens; ++i) tokens.push_back((37 * i * i + 11 * i) % kVocab);
  const SequenceId sequence = runtime.kv().open();
  std::uint64_t hash = 14695981039346656037ull;
  Logits last;
  const auto absorb = [&](const Logits& logits) {
    for (std::int64_t r = 0; r < logits.num_rows; ++r)
      for (std::int32_t i = 0; i < logits.vocab_size; ++i) {
        std::uint32_t bits;
        __builtin_memcpy(&bits, logits.values + r * logits.stride + i, 4);
        hash = mix(hash, bits);
      }
    last = logits;
  };
  const auto run = [&](std::span<const std::int32_t> ids) {
    const Span span{.sequence = sequence,
                    .tokens = ids,
                    .logits = LogitsMode::all,
                    .positions = {},
                    .tree_mask = {},
                    .segments = {}};
    absorb(runtime.step({&span, 1}));
  };
  for (std::size_t i = 0; i < tokens.size(); i += static_cast<std::size_t>(span_tokens))
    run(std::span(tokens).subspan(i, std::min(static_cast<std::size_t>(span_tokens), tokens.size() - i)));
  for (std::int32_t i = 0; i < kAnswerTokens; ++i) {
    const float* row = last.values + (last.num_rows - 1) * last.stride;
    const SampleResult result = sampler.sample({row, static_cast<std::size_t>(last.vocab_size)}, tokens.size(), tokens);
    hash = mix(hash, static_cast<std::uint32_t>(result.token));
    tokens.push_back(result.token);
    run(std::span(tokens).last(1));
  }
  return hash;
}

}  // namespace edgert
