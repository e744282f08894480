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

constexpr std::size_t kBlock = 256, kLanes = 8;  // of the sums over a whole vocabulary

// An integer that grows as the logit falls: sorting by it, stably from ascending ids, gives the contract's order.
std::uint32_t descending_key(float logit) {
  const auto bits = std::bit_cast<std::uint32_t>(logit + 0.0f);  // -0 counts as 0
  return (bits & 0x80000000u) != 0 ? bits : ~(bits | 0x80000000u);
}

// Two loops, so that the one that always runs has no branch.
void check_finite(std::span<const float> logits) {
  constexpr std::uint32_t kExponent = 0x7f800000u;
  bool is_bad = false;
  for (const float x : logits) is_bad |= (std::bit_cast<std::uint32_t>(x) & kExponent) == kExponent;
  if (!is_bad) return;
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (!std::isfinite(logits[i]))
      throw std::domain_error("logits: found " + std::to_string(logits[i]) + " for token " + std::to_string(i) +
                              ", expected finite numbers");
}

}  // namespace

Sampler::Sampler(SamplingOptions options, const KernelTable& kernels)
    : options_(std::move(options)), kernels_(kernels) {}

SampleResult Sampler::sample(std::span<const float> logits, std::uint64_t position,
                             std::span<const std::int32_t> history) {
  const FloatEnvironment environment;
  check_finite(logits);
  adjusted_.assign(logits.begin(), logits.end());
  for (const auto& [id, bias] : options_.logit_bias)
    if (id >= 0 && static_cast<std::size_t>(id) < adjusted_.size()) adjusted_[static_cast<std::size_t>(id)] += bias;
  penalize(history);
  SampleResult result;
  const bool has_top_k = options_.top_k > 0 && static_cast<std::size_t>(options_.top_k) < adjusted_.size();
  const bool has_filter = has_top_k || options_.typical_p < 1 || options_.top_p < 1 || options_.min_p > 0;
  if (options_.temperature == 0) {
    result.token = argmax();
  } else if (!has_filter) {
    result.token = draw_from_all(position);
  } else {
    const bool needs_all = has_top_k || options_.typical_p < 1;
    if (!needs_all && options_.top_p < 1) {
      sort_nucleus();
    } else {
      const double least = needs_all ? -std::numeric_limits<double>::infinity() : min_p_bound();
      sort_candidates(has_top_k ? static_cast<std::size_t>(options_.top_k) : adjusted_.size(), least);
      if (options_.typical_p < 1) keep_typical();
      if (options_.top_p < 1) keep_top_p();
    }
    if (options_.min_p > 0) keep_min_p();
    result.token = draw(position);
  }
  if (options_.num_logprobs >= 0) report(logits, result);
  return result;
}

void Sampler::penalize(std::span<const std::int32_t> history) {
  if (options_.repetition_penalty == 1 && options_.presence_penalty == 0 && options_.frequency_penalty == 0) return;
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
  const float largest = kernels_.max(adjusted_.data(), static_cast<std::int64_t>(adjusted_.size()));
  return static_cast<std::int32_t>(std::find(adjusted_.begin(), adjusted_.end(), largest) - adjusted_.begin());
}

// A logit below which min-p keeps nothing, with room for the rounding of the exponential that decides.
double Sampler::min_p_bound() const {
  const float largest = kernels_.max(adjusted_.data(), static_cast<std::int64_t>(adjusted_.size()));
  return double{largest} + math::log(std::min(options_.min_p, 1.0)) - 1e-6;
}

// The `keep` first candidates by (logit descending, id ascending), of those with a logit of at least `least`.
void Sampler::sort_candidates(std::size_t keep, double least) {
  candidates_.clear();
  if (keep < adjusted_.size()) return sort_few(keep);
  for (std::size_t i = 0; i < adjusted_.size(); ++i)
    if (adjusted_[i] >= least) candidates_.push_back({adjusted_[i], static_cast<std::int32_t>(i)});
  sort_all();
}

// Radix sort, least significant digit first, stable from ascending ids.
void Sampler::sort_all() {
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

// Collects what beats the keep-th best so far; a later id never displaces an equal logit.
void Sampler::sort_few(std::size_t keep) {
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
  for (std::size_t i = 0; i < adjusted_.size(); ++i) {
    if (!(adjusted_[i] > threshold)) continue;
    candidates_.push_back({adjusted_[i], static_cast<std::int32_t>(i)});
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
  weights_.resize(n);
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i)
    sum += weights_[i] = math::exp(double{candidates_[i].logit} - candidates_[0].logit);
  double entropy = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double p = weights_[i] / sum;
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
  while (keep < n && (keep == 0 || reached < options_.typical_p)) reached += weights_[order[keep++]] / sum;
  order.resize(keep);
  std::sort(order.begin(), order.end());
  for (std::size_t i = 0; i < keep; ++i) candidates_[i] = candidates_[order[i]];
  candidates_.resize(keep);
}

void Sampler::keep_top_p() {
  weights_.resize(candidates_.size());
  double sum = 0;
  for (std::size_t i = 0; i < candidates_.size(); ++i)
    sum += weights_[i] = math::exp(double{candidates_[i].logit} - candidates_[0].logit);
  double reached = 0;
  std::size_t keep = 0;
  while (keep < candidates_.size() && (keep == 0 || reached < options_.top_p * sum)) reached += weights_[keep++];
  candidates_.resize(keep);
}

void Sampler::keep_min_p() {
  std::size_t keep = 1;
  while (keep < candidates_.size() &&
         math::exp(double{candidates_[keep].logit} - candidates_[0].logit) >= options_.min_p)
    ++keep;
  candidates_.resize(std::min(keep, candidates_.size()));
}

std::int32_t Sampler::draw(std::uint64_t position) {
  weights_.resize(candidates_.size());
  double sum = 0;
  for (std::size_t i = 0; i < candidates_.size(); ++i)
    sum += weights_[i] = math::exp((double{candidates_[i].logit} - candidates_[0].logit) / options_.temperature);
  const double target = uniform(options_.seed, options_.index, position) * sum;
  double reached = 0;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    reached += weights_[i];
    if (target < reached) return candidates_[i].id;
  }
  return candidates_.back().id;
}

// Weights of all tokens: float32 softmax of (logit - largest) * factor, and the sums of blocks of them in weights_;
// what lies behind the vocabulary has none. Returns the total.
double Sampler::weigh_all(float factor) {
  const auto n = static_cast<std::int64_t>(adjusted_.size());
  const float largest = kernels_.max(adjusted_.data(), n);
  shares_.assign((adjusted_.size() + kBlock - 1) / kBlock * kBlock, 0.0f);
  for (std::size_t i = 0; i < adjusted_.size(); ++i) shares_[i] = (adjusted_[i] - largest) * factor;
  kernels_.softmax(shares_.data(), shares_.data(), static_cast<int>(n));
  weights_.clear();
  double total = 0;
  for (std::size_t begin = 0; begin < shares_.size(); begin += kBlock) {
    double lanes[kLanes] = {};
    for (std::size_t i = 0; i < kBlock; ++i) lanes[i % kLanes] += shares_[begin + i];
    weights_.push_back(((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
                       ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7])));
    total += weights_.back();
  }
  return total;
}

// The nucleus of the whole vocabulary. Tokens that are less likely than the rest's share divided by their number are
// not part of it: all of them together do not make up the rest.
void Sampler::sort_nucleus() {
  const double total = weigh_all(1.0f);
  const double least = 0.5 * (1 - options_.top_p) * total / static_cast<double>(adjusted_.size());
  candidates_.clear();
  for (std::size_t i = 0; i < adjusted_.size(); ++i)
    if (shares_[i] > 0 && shares_[i] >= least) candidates_.push_back({adjusted_[i], static_cast<std::int32_t>(i)});
  sort_all();
  double reached = 0;
  std::size_t keep = 0;
  while (keep < candidates_.size() && (keep == 0 || reached < options_.top_p * total))
    reached += shares_[static_cast<std::size_t>(candidates_[keep++].id)];
  candidates_.resize(keep);
}

// Nothing is cut off, so no order is needed: a vocabulary of 100,000 takes longer to sort than a small model to read.
std::int32_t Sampler::draw_from_all(std::uint64_t position) {
  const double largest_factor = std::numeric_limits<float>::max();
  const double total = weigh_all(static_cast<float>(std::min(1 / options_.temperature, largest_factor)));
  const double target = uniform(options_.seed, options_.index, position) * total;
  while (weights_.back() == 0) weights_.pop_back();
  double reached = 0;
  std::size_t block = 0;
  while (block + 1 < weights_.size() && reached + weights_[block] <= target) reached += weights_[block++];
  std::int32_t likely = 0;  // taken where rounding lets the target slip past the last token
  for (std::size_t i = block * kBlock; i < (block + 1) * kBlock; ++i) {
    reached += shares_[i];
    if (target < reached) return static_cast<std::int32_t>(i);
    if (shares_[i] > 0) likely = static_cast<std::int32_t>(i);
  }
  return likely;
}

void Sampler::report(std::span<const float> logits, SampleResult& result) {
  const auto n = static_cast<std::int64_t>(logits.size());
  const float log_sum = kernels_.log_sum_exp(logits.data(), kernels_.max(logits.data(), n), n);
  result.logprob = logits[static_cast<std::size_t>(result.token)] - log_sum;
  if (options_.num_logprobs == 0) return;
  adjusted_.assign(logits.begin(), logits.end());
  sort_candidates(std::min(adjusted_.size(), static_cast<std::size_t>(options_.num_logprobs)),
                  -std::numeric_limits<double>::infinity());
  for (const Candidate& c : candidates_) result.top.emplace_back(c.id, c.logit - log_sum);
}

}  // namespace edgert
