#include "weights/expert_cache.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace edgert {
namespace {

constexpr float kNeedShare = 1.0f / 64;         // of one visit in the running average of needs
constexpr float kBinDecay = 1.0f - 1.0f / 256;  // predictions of long ago count less
constexpr float kAnything = std::numeric_limits<float>::infinity();
constexpr std::size_t kNobody = static_cast<std::size_t>(-1);

std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

// The options, if they fit together. Predicted reads leave room for the experts of one token.
ExpertCacheOptions checked(ExpertCacheOptions options) {
  const ExpertShape& shape = options.shape;
  const std::vector<std::int64_t>& sizes = options.expert_bytes;
  if (shape.num_layers < 1 || shape.num_experts < 1 || sizes.size() != index(shape.num_slots()))
    throw std::invalid_argument("expert_bytes: found " + std::to_string(sizes.size()) + " sizes, expected " +
                                std::to_string(shape.num_layers) + " layers x " + std::to_string(shape.num_experts));
  if (options.top_k < 1 || options.top_k > shape.num_experts)
    throw std::invalid_argument("top_k: found " + std::to_string(options.top_k) + ", expected 1 to " +
                                std::to_string(shape.num_experts));
  const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
  if (*least < 1) throw std::invalid_argument("expert_bytes: found " + std::to_string(*least) + ", expected 1 or more");
  if (options.capacity_bytes < *most * options.top_k)
    throw std::invalid_argument("capacity_bytes: found " + std::to_string(options.capacity_bytes) +
                                ", expected the experts of one token, " + std::to_string(*most * options.top_k));
  options.prefetch_bytes = std::min(options.prefetch_bytes, options.capacity_bytes - *most * options.top_k);
  return options;
}

}  // namespace

ExpertCache::ExpertCache(ExpertCacheOptions options, std::unique_ptr<EvictionPolicy> policy,
                         std::unique_ptr<ExpertPredictor> predictor)
    : options_(checked(std::move(options))), policy_(std::move(policy)), predictor_(std::move(predictor)) {
  const std::size_t layers = index(options_.shape.num_layers), slots = index(options_.shape.num_slots());
  const std::size_t num_experts = index(options_.shape.num_experts);
  experts_.resize(slots);
  firsts_.resize(layers);
  priorities_.resize(slots);
  need_.resize(slots);
  bins_.resize(layers * index(kBins));
  guesses_.resize(layers);
  for (std::vector<Guess>& guesses : guesses_) guesses.reserve(num_experts);
  likely_.resize(num_experts);
  load_.reserve(num_experts);
  cancel_.reserve(num_experts);
  pending_.reserve(num_experts);
  found_.reserve(num_experts);
  evict_.reserve(slots);
  counters_.resize(layers);
  least_bytes_ = *std::min_element(options_.expert_bytes.begin(), options_.expert_bytes.end());
  policy_->start(priorities_);
}

CacheDecision ExpertCache::route(std::int32_t layer, std::span<const std::int32_t> experts,
                                 std::span<const float> weights) {
  clear_lists();
  verify_prediction(layer, experts);
  ExpertCounters& counters = counters_[index(layer)];
  counters.routed += static_cast<std::int64_t>(experts.size());
  found_.clear();
  pending_.clear();
  for (const std::int32_t expert : experts) {
    Expert& e = at(layer, expert);
    const bool is_hit = e.state == ExpertState::resident, is_late = e.state == ExpertState::in_flight;
    found_.push_back(is_hit ? Found::hit : is_late ? Found::late : Found::miss);
    ++(is_hit ? counters.hits : is_late ? counters.late_hits : counters.misses);
    e.is_demoted = false;
    if (is_late && e.is_unused) prefetch_in_flight_bytes_ -= options_.expert_bytes[slot(layer, expert)];
    e.is_unused = false;
    // What is there, or coming, is pinned before anything is evicted.
    if (is_hit || is_late) e.is_pinned = true;
  }
  for (std::size_t i = experts.size(); i-- > 0;)
    if (found_[i] == Found::miss) pending_.push_back({layer, experts[i]});
  policy_->routed(layer, experts, weights, priorities(layer));
  predictor_->routed(layer, experts, weights);
  float* need = &need_[slot(layer, 0)];
  for (std::int32_t e = 0; e < options_.shape.num_experts; ++e) need[e] *= 1 - kNeedShare;
  for (const std::int32_t expert : experts) need[expert] += kNeedShare;
  admit_pending();
  return decision();
}

CacheDecision ExpertCache::admit() {
  clear_lists();
  admit_pending();
  return decision();
}

void ExpertCache::postpone(std::int32_t layer, std::int32_t expert) {
  release(layer, expert);
  const auto comes_first = [expert](const ExpertRef& other) { return other.expert <= expert; };
  pending_.insert(std::find_if(pending_.begin(), pending_.end(), comes_first), {layer, expert});
}

void ExpertCache::admit_pending() {
  while (!pending_.empty()) {
    const auto [layer, expert] = pending_.back();
    if (at(layer, expert).state == ExpertState::resident) {  // postponed, and not evicted
      at(layer, expert).is_pinned = true;
      pending_.pop_back();
      continue;
    }
    const std::int64_t num_bytes = options_.expert_bytes[slot(layer, expert)];
    if (!make_room(num_bytes, kAnything)) return;
    pending_.pop_back();
    begin_load(layer, expert);
    at(layer, expert).is_pinned = true;
    ++counters_[index(layer)].loads;
    counters_[index(layer)].load_bytes += num_bytes;
  }
}

void ExpertCache::begin_load(std::int32_t layer, std::int32_t expert) {
  at(layer, expert).state = ExpertState::in_flight;
  used_bytes_ += options_.expert_bytes[slot(layer, expert)];
  policy_->loaded(layer, expert, priorities(layer));
  load_.push_back({layer, expert});
}

CacheDecision ExpertCache::resize(std::int64_t capacity_bytes) {
  clear_lists();
  has_been_full_ &= capacity_bytes <= options_.capacity_bytes;
  options_.capacity_bytes = capacity_bytes;
  make_room(0, kAnything);
  return decision();
}

void ExpertCache::release(std::int32_t layer, std::int32_t expert) { at(layer, expert).is_pinned = false; }

void ExpertCache::release(std::int32_t layer) {
  for (std::int32_t e = 0; e < options_.shape.num_experts; ++e) release(layer, e);
}

// What the router chose judges the open prediction of its layer.
void ExpertCache::verify_prediction(std::int32_t layer, std::span<const std::int32_t> experts) {
  std::vector<Guess>& guesses = guesses_[index(layer)];
  if (guesses.empty()) return;
  ExpertCounters& counters = counters_[index(layer)];
  counters.predicted_routed += static_cast<std::int64_t>(experts.size());
  for (std::size_t i = 0; i < guesses.size(); ++i) {
    const bool is_right = std::binary_search(experts.begin(), experts.end(), guesses[i].expert);
    counters.recalled += is_right;
    counters.recalled_top_k += is_right && i < index(options_.top_k);
    Bin& b = bin(layer, guesses[i].bin);
    b.tries = b.tries * kBinDecay + 1;
    b.hits = b.hits * kBinDecay + static_cast<float>(is_right);
  }
  guesses.clear();
  for (std::int32_t expert = 0; expert < options_.shape.num_experts; ++expert) {
    Expert& e = at(layer, expert);
    e.is_predicted = false;
    if (!e.is_unused || std::binary_search(experts.begin(), experts.end(), expert)) continue;
    e.is_demoted = true;
    if (e.state == ExpertState::in_flight) cancel_.push_back({layer, expert});
  }
}

CacheDecision ExpertCache::prefetch(std::int32_t layer, const PredictionHints& hints) {
  clear_lists();
  predictor_->predict(layer, hints, likely_);
  for (std::int32_t e = 0; e < options_.shape.num_experts; ++e) at(layer, e).is_predicted = false;
  rank(layer, likely_);
  const std::vector<Guess>& guesses = guesses_[index(layer)];
  // First what shall stay, so that no read of this call evicts it.
  for (const Guess& guess : guesses)
    at(layer, guess.expert).is_predicted = probability(layer, guess.bin) >= options_.min_probability;
  for (const Guess& guess : guesses) {
    Expert& e = at(layer, guess.expert);
    if (!e.is_predicted || e.state != ExpertState::on_disk) continue;
    const std::int64_t num_bytes = options_.expert_bytes[slot(layer, guess.expert)];
    if (prefetch_in_flight_bytes_ + num_bytes > options_.prefetch_bytes) break;
    if (!make_room(num_bytes, options_.victim_share * probability(layer, guess.bin))) break;
    begin_prefetch(layer, guess.expert);
    e.is_unused = true;
    prefetch_in_flight_bytes_ += num_bytes;
  }
  return decision();
}

CacheDecision ExpertCache::fill(std::int32_t layer) {
  clear_lists();
  const ExpertShape& shape = options_.shape;
  const bool has_room = !has_been_full_ && used_bytes_ + least_bytes_ <= options_.capacity_bytes;
  if (options_.prefetch_bytes <= 0 || !has_room) return decision();  // after each layer: without a look at all experts
  for (std::int32_t i = 0; i < shape.num_layers && load_.empty(); ++i) {
    const std::int32_t here = (layer + i) % shape.num_layers;
    std::size_t best = kNobody;
    for (std::size_t e = slot(here, 0); e < slot(here + 1, 0); ++e) {
      const bool fits = used_bytes_ + options_.expert_bytes[e] <= options_.capacity_bytes;
      if (!fits || experts_[e].state != ExpertState::on_disk) continue;
      if (best == kNobody || need_[e] > need_[best]) best = e;
    }
    if (best != kNobody) begin_prefetch(here, ref(best).expert);
  }
  return decision();
}

void ExpertCache::begin_prefetch(std::int32_t layer, std::int32_t expert) {
  begin_load(layer, expert);
  ++counters_[index(layer)].prefetch_loads;
  counters_[index(layer)].prefetch_bytes += options_.expert_bytes[slot(layer, expert)];
}

// The open prediction of a layer: the likeliest experts, those that are not impossible, in descending order.
void ExpertCache::rank(std::int32_t layer, std::span<const float> likely) {
  std::vector<Guess>& guesses = guesses_[index(layer)];
  guesses.clear();
  for (std::int32_t e = 0; e < options_.shape.num_experts; ++e)
    if (likely[index(e)] > 0)
      guesses.push_back({e, std::min(kBins - 1, static_cast<std::int32_t>(likely[index(e)] * kBins))});
  const auto middle = guesses.begin() + std::min<std::ptrdiff_t>(options_.over_fetch, std::ssize(guesses));
  std::partial_sort(guesses.begin(), middle, guesses.end(), [&](const Guess& a, const Guess& b) {
    const float x = likely[index(a.expert)], y = likely[index(b.expert)];
    return x != y ? x > y : a.expert < b.expert;
  });
  guesses.erase(middle, guesses.end());
}

ExpertCache::Bin& ExpertCache::bin(std::int32_t layer, std::int32_t i) { return bins_[index(layer * kBins + i)]; }

// Until a bin has been tried, its own likelihood is believed.
float ExpertCache::probability(std::int32_t layer, std::int32_t i) {
  const float own = (static_cast<float>(i) + 0.5f) / kBins;
  const Bin& b = bin(layer, i);
  return (b.hits + 4 * own) / (b.tries + 4);
}

// False, with nothing evicted, where the room cannot be made.
bool ExpertCache::make_room(std::int64_t num_bytes, float need_below) {
  const std::size_t before = evict_.size();
  const std::int64_t used_before = used_bytes_;
  while (used_bytes_ + num_bytes > options_.capacity_bytes) {
    const std::size_t victim = find_victim();
    // A prediction may take the place of what is less needed, and of nothing that is predicted itself.
    const bool is_too_dear =
        victim != kNobody && need_below != kAnything && (experts_[victim].is_predicted || need_[victim] > need_below);
    if (victim == kNobody || is_too_dear) {
      // Experts of other sizes may have gone already: they are taken back, as nobody has been told.
      for (; evict_.size() > before; evict_.pop_back())
        at(evict_.back().layer, evict_.back().expert).state = ExpertState::resident;
      used_bytes_ = used_before;
      return false;
    }
    has_been_full_ = true;
    const ExpertRef gone = ref(victim);
    at(gone.layer, gone.expert).state = ExpertState::on_disk;
    used_bytes_ -= options_.expert_bytes[victim];
    evict_.push_back(gone);
  }
  for (std::size_t i = before; i < evict_.size(); ++i) forget(evict_[i].layer, evict_[i].expert);
  return true;
}

// What goes first of all that is resident and not pinned.
std::size_t ExpertCache::find_victim() {
  std::size_t best = kNobody;
  for (std::int32_t layer = 0; layer < options_.shape.num_layers; ++layer) {
    First& first = firsts_[index(layer)];
    if (std::exchange(first.is_stale, false)) first.slot = find_victim(layer);
    if (first.slot != kNobody && (best == kNobody || goes_before(first.slot, best))) best = first.slot;
  }
  return best;
}

std::size_t ExpertCache::find_victim(std::int32_t layer) const {
  std::size_t best = kNobody;
  for (std::size_t i = slot(layer, 0); i < slot(layer + 1, 0); ++i) {
    const Expert& e = experts_[i];
    if (e.state != ExpertState::resident || e.is_pinned) continue;
    if (best == kNobody || goes_before(i, best)) best = i;
  }
  return best;
}

// Demoted ones first, then by the policy; what is predicted for a coming layer last. Of equals the one that is asked
// about second.
bool ExpertCache::goes_before(std::size_t a, std::size_t b) const {
  const auto group = [](const Expert& e) { return e.is_predicted ? 2 : e.is_demoted ? 0 : 1; };
  const int group_a = group(experts_[a]), group_b = group(experts_[b]);
  return group_a != group_b ? group_a < group_b : priorities_[a] < priorities_[b];
}

// An evicted expert keeps nothing of its stay.
void ExpertCache::forget(std::int32_t layer, std::int32_t expert) {
  Expert& e = at(layer, expert);
  if (e.is_unused) {
    ++counters_[index(layer)].wasted;
    counters_[index(layer)].wasted_bytes += options_.expert_bytes[slot(layer, expert)];
  }
  e.is_unused = e.is_demoted = false;
}

void ExpertCache::arrived(std::int32_t layer, std::int32_t expert) {
  Expert& e = at(layer, expert);
  e.state = ExpertState::resident;
  if (e.is_unused) prefetch_in_flight_bytes_ -= options_.expert_bytes[slot(layer, expert)];
}

void ExpertCache::reread(std::int32_t layer, std::int32_t expert) {
  Expert& e = at(layer, expert);
  e.state = ExpertState::in_flight;
  if (e.is_unused) prefetch_in_flight_bytes_ += options_.expert_bytes[slot(layer, expert)];
}

void ExpertCache::failed(std::int32_t layer, std::int32_t expert) {
  Expert& e = at(layer, expert);
  const std::int64_t num_bytes = options_.expert_bytes[slot(layer, expert)];
  if (e.is_unused) prefetch_in_flight_bytes_ -= num_bytes;
  used_bytes_ -= num_bytes;
  e = {.is_predicted = e.is_predicted};
}

void ExpertCache::cancelled(std::int32_t layer, std::int32_t expert) {
  ++counters_[index(layer)].cancelled;
  counters_[index(layer)].cancelled_bytes += options_.expert_bytes[slot(layer, expert)];
  failed(layer, expert);
}

std::span<double> ExpertCache::priorities(std::int32_t layer) {
  firsts_[index(layer)].is_stale = true;
  return std::span<double>(priorities_).subspan(slot(layer, 0), index(options_.shape.num_experts));
}

ExpertRef ExpertCache::ref(std::size_t slot) const {
  const auto i = static_cast<std::int32_t>(slot);
  return {i / options_.shape.num_experts, i % options_.shape.num_experts};
}

void ExpertCache::clear_lists() {
  load_.clear();
  evict_.clear();
  cancel_.clear();
}

CacheDecision ExpertCache::decision() const {
  return {
      .evict = evict_, .cancel = cancel_, .load = load_, .num_deferred = static_cast<std::int32_t>(pending_.size())};
}

}  // namespace edgert
