// Which kernel multiplies: of all that give the bits of a format, the fastest for a shape and a number of tokens.
#pragma once
#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "kernels/kernel_table.h"

namespace edgert {

// Numbers of tokens among which one choice serves, by the largest of each class: 1, 2, 3-4, 5-8, 9-16, 17-64, more.
inline constexpr std::array<std::int32_t, 7> kTokenClasses = {1, 2, 4, 8, 16, 64, kAnyTokens};
inline constexpr int kNumTokenClasses = static_cast<int>(kTokenClasses.size());
inline int token_class(std::int32_t tokens) {
  int i = 0;
  while (tokens > kTokenClasses[static_cast<std::size_t>(i)]) ++i;
  return i;
}

// "dot": a kernel of the level itself; "avx2/dot": one of a lower level, which may be the faster.
struct LinearCandidate {
  std::string name;
  LinearFunction run = nullptr;
  bool needs_tables = false;
};

// The kernels of a format that take every number of tokens of a class, each once: those of the level in its order, then
// those of lower levels. The scalar ones compete only where there are no others, and those that round only if they have
// the name `rounded`.
std::vector<LinearCandidate> linear_candidates(const KernelTable& kernels, Format format, int token_class,
                                               const std::string& rounded = "");

// What a choice is made for. tokens: an element of kTokenClasses.
struct LinearCase {
  Format format = Format::f32;
  std::int32_t rows = 0, cols = 0, tokens = 0;
  auto operator<=>(const LinearCase&) const = default;
};

// Seconds of one product in each pass, candidate by candidate. The passes alternate, so that a change of the machine's
// pace meets all of them; a candidate that was given up has fewer.
using LinearPasses = std::vector<std::vector<double>>;

// What the passes say. index: of the fastest candidate; 0, the first guess, unless another is faster by more than noise
// in its best pass and in nearly every one. is_steady: another measurement would say the same.
struct LinearVerdict {
  std::size_t index = 0;
  bool is_steady = false;
};
LinearVerdict judge(const LinearPasses& passes);

// What was chosen. seconds: the least of one product, by candidate in their order; empty where it was not measured
// here, or not steadily.
struct LinearPick {
  LinearCase of;
  std::string kernel;
  std::vector<std::pair<std::string, double>> seconds;
};

struct LinearChoiceOptions {
  std::string forced;                       // a candidate's name: taken wherever it is one; empty: none
  std::map<LinearCase, std::string> known;  // choices of earlier runs; names that are no candidates are passed over
  double budget_s = 0;                      // for measuring what is not known; 0: nothing is measured
};

// Made once, before the first step. All candidates give the same bits, so a choice changes the time of a step only.
class LinearChoice {
 public:
  // Times the candidates on the graph's weights, one token first, until the budget is spent: a case that was not
  // reached, or of which no weight is resident, takes the first candidate. REQUIRES: the store is loaded.
  LinearChoice(const Graph& graph, const WeightStore& store, const KernelTable& kernels, int num_threads,
               std::int32_t max_tokens, const LinearChoiceOptions& options);

  // REQUIRES: id is a matrix that the graph multiplies with.
  LinearFunction function(WeightId id, const LinearInput& x) const {
    const Shape& shape = shapes_[static_cast<std::size_t>(shape_of_[static_cast<std::size_t>(id)])];
    const Chosen& chosen = shape.chosen[static_cast<std::size_t>(token_class(x.tokens))];
    if (chosen.run != nullptr && (x.tables != nullptr || !chosen.needs_tables)) return chosen.run;
    return linear_function(kernels_.linear[static_cast<int>(shape.format)], x);
  }
  // The same for what it is seen as: where these are its leading parts, no kernels were timed.
  LinearFunction function(WeightId id, const LinearInput& x, Format format) const {
    const Shape& shape = shapes_[static_cast<std::size_t>(shape_of_[static_cast<std::size_t>(id)])];
    return format == shape.format ? function(id, x) : linear_function(kernels_.linear[static_cast<int>(format)], x);
  }
  // For every shape and every class of tokens that a step may have.
  const std::vector<LinearPick>& picks() const { return picks_; }

 private:
  struct Chosen {
    LinearFunction run = nullptr;  // null: no kernel takes the whole class
    bool needs_tables = false;
  };
  struct Shape {
    Format format;
    std::int32_t rows, cols;
    std::vector<WeightId> weights;
    std::array<Chosen, kNumTokenClasses> chosen{};
  };

  void add_weight(const WeightStore& store, WeightId id);

  const KernelTable& kernels_;
  std::vector<Shape> shapes_;
  std::vector<std::int32_t> shape_of_;  // by weight; -1: not multiplied with
  std::vector<LinearPick> picks_;
};

}  // namespace edgert
