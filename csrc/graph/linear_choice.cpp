#include "graph/linear_choice.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <span>

#include "base/memory.h"
#include "graph/linear_timer.h"
#include "kernels/single.h"

namespace edgert {
namespace {

// A pass takes about a millisecond, short enough to fall between two interruptions: so much of the weights where few
// tokens are multiplied, so many products where many are. Small weights are repeated.
constexpr std::int64_t kPassBytes = std::int64_t{24} << 20;
constexpr std::int64_t kPassProducts = std::int64_t{1} << 26;
constexpr std::size_t kMaxPassMatrices = 64;
constexpr std::int32_t kMostTimedTokens = 256;
constexpr std::size_t kPasses = 7, kPassesToGiveUp = 2;
constexpr int kBusy = 3;           // so many unsteady measurements, and no more are made
constexpr double kHopeless = 1.5;  // times the fastest: given up
constexpr double kClearly = 0.97, kSteady = 1.2;

// The weights of one shape, cut so that a few of them make a pass. A pass begins where the one before it ended: where
// the weights of a model exceed the caches, those of a pass come from memory as in a step.
class PassWeights {
 public:
  PassWeights(const WeightStore& store, const std::vector<WeightId>& weights, std::int32_t tokens) {
    const WeightView& first = store.pin(weights[0]);
    const std::int64_t most_strips = std::max<std::int64_t>(
        1, std::min(kPassBytes / strip_bytes(first), kPassProducts / (std::int64_t{tokens} * kStripRows * first.cols)));
    const auto strips = static_cast<std::int32_t>(std::min<std::int64_t>(first.strips, most_strips));
    num_cuts_ = static_cast<double>(first.strips) / strips;
    const auto count = static_cast<std::size_t>(most_strips / strips);
    pass_.resize(std::clamp<std::size_t>(count, 1, kMaxPassMatrices));
    for (const WeightId id : weights) {
      views_.push_back(store.pin(id));
      views_.back().strips = strips;
      views_.back().rows = std::min(views_.back().rows, strips * kStripRows);
      views_.back().outlier_starts = nullptr;  // they cost every kernel the same
    }
  }
  std::int32_t rows() const { return views_[0].rows; }
  double num_cuts() const { return num_cuts_; }  // a whole product takes so many times as long
  std::int32_t cols() const { return views_[0].cols; }
  std::span<const WeightView> next() {
    for (WeightView& view : pass_) view = views_[next_++ % views_.size()];
    return pass_;
  }

 private:
  std::vector<WeightView> views_, pass_;
  std::size_t next_ = 0;
  double num_cuts_ = 1;
};

LinearPasses time_candidates(const std::vector<LinearCandidate>& candidates, PassWeights weights,
                             const KernelTable& kernels, Format format, std::int32_t tokens, int num_threads) {
  const std::int32_t cols = weights.cols();
  std::vector<float> values(static_cast<std::size_t>(tokens) * static_cast<std::size_t>(cols));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 37 % 255) - 127.0f;
  const PreparedInput input(kernels, values.data(), tokens, cols, spec(format).activation_columns);
  const std::int64_t stride = round_up(weights.rows(), kStripRows);
  const Memory out(static_cast<std::size_t>(tokens * stride) * sizeof(float));
  const LinearOutput y{out.as<float>(), stride, nullptr};
  LinearPasses passes(candidates.size());
  std::vector<double> least(candidates.size(), std::numeric_limits<double>::infinity());
  for (std::size_t pass = 0; pass < kPasses; ++pass) {
    const double fastest = *std::min_element(least.begin(), least.end());
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      if (pass >= kPassesToGiveUp && i > 0 && least[i] > kHopeless * fastest) continue;
      const double seconds = time_linear(candidates[i].run, weights.next(), input.input(), y, num_threads, 1)[0];
      passes[i].push_back(seconds * weights.num_cuts());
      least[i] = std::min(least[i], passes[i].back());
    }
  }
  return passes;
}

}  // namespace

std::vector<LinearCandidate> linear_candidates(const KernelTable& kernels, Format format, int token_class,
                                               const std::string& rounded) {
  const std::int32_t most = kTokenClasses[static_cast<std::size_t>(token_class)];
  const std::int32_t least = token_class == 0 ? 1 : kTokenClasses[static_cast<std::size_t>(token_class) - 1] + 1;
  std::vector<LinearCandidate> candidates;
  const auto add = [&](const KernelTable& table) {
    for (const LinearKernel& kernel : table.linear[static_cast<int>(format)]) {
      if (kernel.name == nullptr || kernel.min_tokens > least || kernel.max_tokens < most) continue;
      if (kernel.is_rounded && (&table != &kernels || rounded != kernel.name)) continue;
      const auto is_same = [&](const LinearCandidate& c) { return c.run == kernel.run; };
      if (std::any_of(candidates.begin(), candidates.end(), is_same)) continue;
      std::string name;
      if (&table != &kernels) name.append(table.name).append("/");
      candidates.push_back({name.append(kernel.name), kernel.run, kernel.needs_tables});
    }
  };
  add(kernels);
  int level = num_isa_levels() - 1;
  while (std::strcmp(isa_level(level).name, kernels.name) != 0) --level;
  for (--level; level > 0; --level)
    if (const KernelTable* lower = kernel_table(isa_level(level).name)) add(*lower);
  return candidates;
}

LinearVerdict judge(const LinearPasses& passes) {
  const auto least = [](const std::vector<double>& p) { return *std::min_element(p.begin(), p.end()); };
  const std::vector<double>& first = passes[0];
  LinearVerdict verdict;
  for (std::size_t i = 1; i < passes.size(); ++i)
    if (least(passes[i]) < least(passes[verdict.index])) verdict.index = i;
  const std::vector<double>& best = passes[verdict.index];
  std::vector<double> sorted = best;
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2), sorted.end());
  verdict.is_steady = sorted[sorted.size() / 2] < kSteady * least(best);
  if (verdict.index == 0) return verdict;
  const bool is_clear = least(best) < kClearly * least(first);
  std::size_t num_won = 0;
  for (std::size_t i = 0; i < std::min(best.size(), first.size()); ++i) num_won += best[i] < first[i] ? 1 : 0;
  if (is_clear && num_won + 1 >= first.size()) return verdict;
  return {0, verdict.is_steady && !is_clear};
}

LinearChoice::LinearChoice(const Graph& graph, const WeightStore& store, const KernelTable& kernels, int num_threads,
                           std::int32_t max_tokens, const LinearChoiceOptions& options)
    : kernels_(kernels), shape_of_(store.num_weights(), -1) {
  for (const Node& node : graph.nodes) {
    if (node.op == Op::linear) add_weight(store, node.weights[0]);
    if (node.op == Op::moe)
      for (const WeightId id : node.weights) add_weight(store, id);
  }
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed_s = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  int num_unsteady = 0;
  for (std::size_t c = 0; c < kTokenClasses.size(); ++c) {
    if (c > 0 && kTokenClasses[c - 1] >= max_tokens) break;
    const std::int32_t tokens = std::min({kTokenClasses[c], max_tokens, kMostTimedTokens});
    for (Shape& shape : shapes_) {
      const std::vector<LinearCandidate> candidates =
          linear_candidates(kernels, shape.format, static_cast<int>(c), options.forced);
      if (candidates.empty()) continue;
      const auto index_of = [&](const std::string& name) {
        return static_cast<std::size_t>(
            std::find_if(candidates.begin(), candidates.end(), [&](const auto& x) { return x.name == name; }) -
            candidates.begin());
      };
      LinearPick pick{{shape.format, shape.rows, shape.cols, kTokenClasses[c]}, {}, {}};
      const auto known = options.known.find(pick.of);
      std::size_t picked =
          index_of(!options.forced.empty() || known == options.known.end() ? options.forced : known->second);
      if (picked == candidates.size()) {
        picked = 0;
        const bool is_timed = options.forced.empty() && candidates.size() > 1 && !shape.weights.empty();
        if (is_timed && num_unsteady < kBusy && elapsed_s() < options.budget_s) {
          const LinearPasses passes = time_candidates(candidates, PassWeights(store, shape.weights, tokens), kernels,
                                                      shape.format, tokens, num_threads);
          const LinearVerdict verdict = judge(passes);
          picked = verdict.index;
          num_unsteady += verdict.is_steady ? 0 : 1;
          for (std::size_t i = 0; i < candidates.size() && verdict.is_steady; ++i)
            pick.seconds.emplace_back(candidates[i].name, *std::min_element(passes[i].begin(), passes[i].end()));
        }
      }
      shape.chosen[c] = {candidates[picked].run, candidates[picked].needs_tables};
      pick.kernel = candidates[picked].name;
      picks_.push_back(std::move(pick));
    }
  }
}

void LinearChoice::add_weight(const WeightStore& store, WeightId id) {
  std::int32_t& shape_index = shape_of_[static_cast<std::size_t>(id)];
  if (shape_index >= 0) return;
  const WeightView& view = store.describe(id);
  auto it = std::find_if(shapes_.begin(), shapes_.end(), [&](const Shape& s) {
    return s.format == view.format && s.rows == view.rows && s.cols == view.cols;
  });
  if (it == shapes_.end()) {
    shapes_.push_back({view.format, view.rows, view.cols, {}, {}});
    it = shapes_.end() - 1;
  }
  if (!store.is_streamed(id)) it->weights.push_back(id);
  shape_index = static_cast<std::int32_t>(it - shapes_.begin());
}

}  // namespace edgert
