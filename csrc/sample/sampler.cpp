#include "sample/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>

#include "base/fp_env.h"
#include "base/math.h"
#include "sample/philox.h"

namespace edgert {
namespace {

constexpr float kUnit = 0x1p40f;  // mass of the weight 1: a vocabulary of 2^23 cannot overflow
// By way of a signed number, which every processor converts to in one step.
std::uint64_t mass_of(float weight) { return static_cast<std::uint64_t>(static_cast<std::int64_t>(weight * kUnit)); }
// Ranges of logits below the largest, each 1/64 wide, the last endless: which one a running sum ends in is known
// without sorting.
constexpr std::size_t kRanges = 2048;
constexpr float kRangesPerNat = 64.0f;

std::size_t range_of(float logit, float largest) {
  return static_cast<std::size_t>(
      static_cast<std::int32_t>(std::min((largest - logit) * kRangesPerNat, static_cast<float>(kRanges - 1))));
}

// An integer that grows as the logit falls: sorting by it, stably from ascending ids, gives the contract's order.
std::uint32_t descending_key(float logit) {
  const auto bits = std::bit_cast<std::uint32_t>(logit + 0.0f);  // -0 counts as 0
  return (bits & 0x80000000u) != 0 ? bits : ~(bits | 0x80000000u);
}

// A block of logits is in the first-level cache for the second look at it.
constexpr std::size_t kBlock = 4096;

// The exponent of a number that is not finite is the largest: one more sets the sign bit.
bool are_finite(std::span<const float> logits) {
  std::uint32_t all = 0;
  for (const float x : logits) all |= (std::bit_cast<std::uint32_t>(x) & 0x7fffffffu) + 0x00800000u;
  return all >> 31 == 0;
}

[[noreturn]] void throw_not_finite(std::span<const float> logits) {
  std::size_t i = 0;
  while (std::isfinite(logits[i])) ++i;
  throw std::domain_error("logits: found " + std::to_string(logits[i]) + " for token " + std::to_string(i) +
                          ", expected finite numbers");
}

}  // namespace

Sampler::Sampler(SamplingOptions options, const KernelTable& kernels)
    : options_(std::move(options)), kernels_(kernels) {}

SampleResult Sampler::sample(std::span<const float> logits, std::uint64_t position,
                             std::span<const std::int32_t> history) {
  const FloatEnvironment environment;
  logits_ = logits;
  if (!options_.logit_bias.empty() || has_penalties()) adjust(history);
  find_largest(logits);
  SampleResult result;
  const bool has_top_k = options_.top_k > 0 && static_cast<std::size_t>(options_.top_k) < logits_.size();
  if (options_.temperature == 0) {
    result.token = argmax();
  } else if (has_top_k || options_.typical_p < 1) {
    sort_first(has_top_k ? static_cast<std::size_t>(options_.top_k) : logits_.size());
    if (options_.typical_p < 1) keep_typical();
    result.token = draw_from_candidates(position);
  } else {
    result.token = draw_from_all(position);
  }
  if (options_.num_logprobs >= 0) report(logits, result);
  return result;
}

bool Sampler::has_penalties() const {
  return options_.repetition_penalty != 1 || options_.presence_penalty != 0 || options_.frequency_penalty != 0;
}

// Bias and penalties, in a copy of the logits.
void Sampler::adjust(std::span<const std::int32_t> history) {
  adjusted_.assign(logits_.begin(), logits_.end());
  for (const auto& [id, bias] : options_.logit_bias)
    if (id >= 0 && static_cast<std::size_t>(id) < adjusted_.size()) adjusted_[static_cast<std::size_t>(id)] += bias;
  if (has_penalties()) penalize(history);
  logits_ = adjusted_;
}

// Looks once at what the core has written: it is half a megabyte that another thread's cache may hold.
void Sampler::find_largest(std::span<const float> unadjusted) {
  for (std::size_t begin = 0; begin < logits_.size(); begin += kBlock) {
    const std::size_t size = std::min(kBlock, logits_.size() - begin);
    if (!are_finite(unadjusted.subspan(begin, size))) throw_not_finite(unadjusted);
    const float largest = kernels_.max(logits_.data() + begin, static_cast<std::int64_t>(size));
    if (begin == 0 || largest > largest_) {
      largest_ = largest;
      largest_block_ = begin;
    }
  }
}

void Sampler::penalize(std::span<const std::int32_t> history) {
  if (options_.penalty_last_n >= 0 && history.size() > static_cast<std::size_t>(options_.penalty_last_n))
    history = history.last(static_cast<std::size_t>(options_.penalty_last_n));
  seen_.assign(history.begin(), history.end());
  std::sort(seen_.begin(), seen_.end());
  for (std::size_t begin = 0; begin < seen_.size();) {
    std::size_t end = begin;
    while (end < seen_.size() && seen_[end] == seen_[begin]) ++end;
    const std::int32_t id = seen_[begin];
    if (id >= 0 && static_cast<std::size_t>(id) < adjusted_.size()) {
      float& logit = adjusted_[static_cast<std::size_t>(id)];
      const auto repetition = static_cast<float>(options_.repetition_penalty);
      logit = logit > 0 ? logit / repetition : logit * repetition;
      logit -= static_cast<float>(options_.presence_penalty) +
               static_cast<float>(end - begin) * static_cast<float>(options_.frequency_penalty);
    }
    begin = end;
  }
}

std::int32_t Sampler::argmax() const {
  const auto begin = logits_.begin();
  return static_cast<std::int32_t>(
      std::find(begin + static_cast<std::ptrdiff_t>(largest_block_), logits_.end(), largest_) - begin);
}

// Top-p's share of the total: the running sum that the last token kept reaches first exceeds what is returned.
Sampler::Mass Sampler::share_of(Mass total) const {
  const auto share = static_cast<Mass>(options_.top_p * static_cast<double>(total));
  return std::min(std::max<Mass>(share, 1), total) - 1;
}

// floor(u * total), exactly.
Sampler::Mass Sampler::draw_from(Mass total, std::uint64_t position) const {
  const auto u = static_cast<std::uint64_t>(uniform(options_.seed, options_.index, position) * 0x1p53);
  __extension__ typedef unsigned __int128 Wide;
  return static_cast<Mass>((Wide{u} * total) >> 53);
}

float Sampler::min_p_bound(float largest) const {
  if (options_.min_p <= 0) return -std::numeric_limits<float>::infinity();
  return static_cast<float>(double{largest} + math::log(std::min(options_.min_p, 1.0)));
}

float Sampler::factor() const {
  const double least = std::numeric_limits<float>::min(), most = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(1 / options_.temperature, least, most));
}

// Radix sort, least significant digit first, stable from ascending ids.
void Sampler::sort_candidates() {
  sorted_.resize(candidates_.size());
  constexpr int kDigitBits = 11;
  std::vector<std::size_t> first(std::size_t{1} << kDigitBits);
  for (int shift = 0; shift < 32; shift += kDigitBits) {
    std::fill(first.begin(), first.end(), 0);
    const std::uint32_t mask = (1u << kDigitBits) - 1;
    for (const Candidate& c : candidates_) ++first[(descending_key(c.logit) >> shift) & mask];
    std::exclusive_scan(first.begin(), first.end(), first.begin(), std::size_t{0});
    for (const Candidate& c : candidates_) sorted_[first[(descending_key(c.logit) >> shift) & mask]++] = c;
    candidates_.swap(sorted_);
  }
}

// The `keep` first candidates by (logit descending, id ascending). Collects what beats the keep-th best so far; a later
// id never displaces an equal logit.
void Sampler::sort_first(std::size_t keep) {
  candidates_.clear();
  if (keep >= logits_.size()) {
    for (std::size_t i = 0; i < logits_.size(); ++i) candidates_.push_back({logits_[i], static_cast<std::int32_t>(i)});
    return sort_candidates();
  }
  const auto before = [](const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  };
  const auto shrink = [&] {
    if (candidates_.size() <= keep) return;
    const auto last = candidates_.begin() + static_cast<std::ptrdiff_t>(keep);
    std::nth_element(candidates_.begin(), last - 1, candidates_.end(), before);
    candidates_.erase(last, candidates_.end());
  };
  float threshold = -std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < logits_.size(); ++i) {
    if (!(logits_[i] > threshold)) continue;
    candidates_.push_back({logits_[i], static_cast<std::int32_t>(i)});
    if (candidates_.size() < 4 * keep) continue;
    shrink();
    threshold = candidates_.back().logit;
  }
  shrink();
  std::sort(candidates_.begin(), candidates_.end(), before);
}

// The candidates whose surprise is nearest to the entropy, up to typical_p of the probability.
void Sampler::keep_typical() {
  const std::size_t n = candidates_.size();
  std::vector<double> weights(n);
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i)
    sum += weights[i] = math::exp(double{candidates_[i].logit} - candidates_[0].logit);
  double entropy = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double p = weights[i] / sum;
    if (p > 0) entropy -= p * math::log(p);
  }
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<double> distance(n);
  const double log_sum = math::log(sum);
  for (std::size_t i = 0; i < n; ++i)
    distance[i] = std::fabs(log_sum - (double{candidates_[i].logit} - candidates_[0].logit) - entropy);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return distance[a] < distance[b]; });
  double reached = 0;
  std::size_t keep = 0;
  while (keep < n && (keep == 0 || reached < options_.typical_p)) reached += weights[order[keep++]] / sum;
  order.resize(keep);
  std::sort(order.begin(), order.end());
  for (std::size_t i = 0; i < keep; ++i) candidates_[i] = candidates_[order[i]];
  candidates_.resize(keep);
}

// Masses of the candidates in masses_; returns their sum.
Sampler::Mass Sampler::weigh_candidates(float factor) {
  const std::size_t n = candidates_.size();
  weights_.resize(n);
  masses_.resize(n);
  for (std::size_t i = 0; i < n; ++i) weights_[i] = candidates_[i].logit;
  kernels_.exp_shifted(weights_.data(), candidates_[0].logit, factor, weights_.data(), static_cast<std::int64_t>(n));
  Mass total = 0;
  for (std::size_t i = 0; i < n; ++i) total += masses_[i] = mass_of(weights_[i]);
  return total;
}

// The first candidate up to which the masses exceed the target. REQUIRES: all of them do.
std::size_t Sampler::candidate_at(Mass target) const {
  std::size_t i = 0;
  for (Mass reached = masses_[0]; reached <= target; reached += masses_[i]) ++i;
  return i;
}

std::int32_t Sampler::draw_from_candidates(std::uint64_t position) {
  if (options_.top_p < 1) candidates_.resize(candidate_at(share_of(weigh_candidates(1.0f))) + 1);
  const float least = min_p_bound(candidates_[0].logit);
  std::size_t keep = 1;
  while (keep < candidates_.size() && candidates_[keep].logit >= least) ++keep;
  candidates_.resize(keep);
  const Mass total = weigh_candidates(factor());
  return candidates_[candidate_at(draw_from(total, position))].id;
}

// Weights of the whole vocabulary, 0 for logits below `least` and for what comes after `last`; masses of the ranges of
// logits. Returns the total.
Sampler::Mass Sampler::weigh_all(float factor, float least, const Candidate& last) {
  const std::size_t n = logits_.size();
  weights_.resize(n);
  masses_.assign(kRanges, 0);
  kernels_.exp_shifted(logits_.data(), largest_, factor, weights_.data(), static_cast<std::int64_t>(n));
  const float cut = std::max(least, last.logit);
  for (std::size_t i = 0; i < n; ++i) weights_[i] = logits_[i] < cut ? 0.0f : weights_[i];
  for (std::size_t i = n; i-- > 0 && static_cast<std::int32_t>(i) > last.id;)
    if (logits_[i] == last.logit) weights_[i] = 0.0f;
  for (std::size_t i = 0; i < n; ++i) masses_[range_of(logits_[i], largest_)] += mass_of(weights_[i]);
  return std::accumulate(masses_.begin(), masses_.end(), Mass{0});
}

// The first token, by (logit descending, id ascending), up to which the masses of weigh_all exceed the target. Only the
// range of logits in which that happens is sorted. REQUIRES: the target is below the total.
Sampler::Candidate Sampler::find(Mass target) {
  std::size_t range = 0;
  for (; masses_[range] <= target; ++range) target -= masses_[range];
  candidates_.clear();
  for (std::size_t i = 0; i < logits_.size(); ++i)
    if (weights_[i] > 0 && range_of(logits_[i], largest_) == range)
      candidates_.push_back({logits_[i], static_cast<std::int32_t>(i)});
  sort_candidates();
  std::size_t i = 0;
  for (;; ++i) {
    const auto mass = mass_of(weights_[static_cast<std::size_t>(candidates_[i].id)]);
    if (target < mass) return candidates_[i];
    target -= mass;
  }
}

std::int32_t Sampler::draw_from_all(std::uint64_t position) {
  Candidate last{-std::numeric_limits<float>::infinity(), std::numeric_limits<std::int32_t>::max()};
  if (options_.top_p < 1) last = find(share_of(weigh_all(1.0f, last.logit, last)));
  return find(draw_from(weigh_all(factor(), min_p_bound(largest_), last), position)).id;
}

void Sampler::report(std::span<const float> logits, SampleResult& result) {
  const auto n = static_cast<std::int64_t>(logits.size());
  const float largest = logits_.data() == logits.data() ? largest_ : kernels_.max(logits.data(), n);
  const float log_sum = kernels_.log_sum_exp(logits.data(), largest, n);
  result.logprob = logits[static_cast<std::size_t>(result.token)] - log_sum;
  if (options_.num_logprobs == 0) return;
  logits_ = logits;
  sort_first(static_cast<std::size_t>(options_.num_logprobs));
  for (const Candidate& c : candidates_) result.top.emplace_back(c.id, c.logit - log_sum);
}

}  // namespace edgert
