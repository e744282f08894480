// Chooses the next token from one row of logits.
#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/kernel_table.h"

namespace edgert {

// Order: logit bias, penalties, then either the largest (temperature 0) or top-k, typical, top-p, min-p, temperature,
// draw.
struct SamplingOptions {
  double temperature = 1.0;
  std::int32_t top_k = 0;            // 0: all
  double top_p = 1.0;                // nucleus (Holtzman et al. 2020); 1: off
  double min_p = 0.0;                // share of the most likely token's probability (Nguyen et al. 2024); 0: off
  double typical_p = 1.0;            // locally typical sampling (Meister et al. 2022); 1: off
  double repetition_penalty = 1.0;   // divides positive, multiplies negative logits of seen tokens (Keskar et al. 2019)
  double presence_penalty = 0.0;     // subtracted once from each seen token
  double frequency_penalty = 0.0;    // subtracted for each time that it was seen
  std::int32_t penalty_last_n = 64;  // tokens of the history that count; -1: all
  std::vector<std::pair<std::int32_t, float>> logit_bias;
  std::uint64_t seed = 0;
  std::uint32_t index = 0;         // of the sample within its request
  std::int32_t num_logprobs = -1;  // alternatives to report; -1: not even the chosen token's
};

struct SampleResult {
  std::int32_t token = -1;
  float logprob = 0;  // natural logarithm, of the model's own distribution (before bias, penalties and temperature)
  std::vector<std::pair<std::int32_t, float>> top;  // by (log-probability descending, id ascending)
};

// Keeps its work space between calls; one thread at a time.
class Sampler {
 public:
  Sampler(SamplingOptions options, const KernelTable& kernels);
  // logits: [vocab]; position: the absolute position that the new token takes; history: prompt and answer so far.
  // Throws std::domain_error if a logit is not finite.
  SampleResult sample(std::span<const float> logits, std::uint64_t position, std::span<const std::int32_t> history);

 private:
  struct Candidate {
    float logit;
    std::int32_t id;
  };
  // Weights are whole numbers, so that their sums are exact whatever the order in which they are made.
  using Mass = std::uint64_t;
  bool has_penalties() const;
  void adjust(std::span<const std::int32_t> history);
  void penalize(std::span<const std::int32_t> history);
  void find_largest(std::span<const float> unadjusted);
  std::int32_t argmax() const;
  Mass share_of(Mass total) const;
  Mass draw_from(Mass total, std::uint64_t position) const;
  float min_p_bound(float largest) const;
  float factor() const;
  void sort_candidates();
  void sort_first(std::size_t keep);
  void keep_typical();
  Mass weigh_candidates(float factor);
  std::size_t candidate_at(Mass target) const;
  std::int32_t draw_from_candidates(std::uint64_t position);
  Mass weigh_all(float factor, float least, const Candidate& last);
  Candidate find(Mass target);
  std::int32_t draw_from_all(std::uint64_t position);
  void report(std::span<const float> logits, SampleResult& result);

  SamplingOptions options_;
  const KernelTable& kernels_;
  std::span<const float> logits_;  // as the model gave them, or adjusted_ by bias and penalties; during a call
  std::vector<float> adjusted_, weights_;
  std::vector<Candidate> candidates_, sorted_;
  std::vector<Mass> masses_;       // of the candidates, or of ranges of logits
  float largest_ = 0;              // of logits_
  std::size_t largest_block_ = 0;  // where the first of those that are as large is to be looked for
  std::vector<std::int32_t> seen_;
};

}  // namespace edgert
