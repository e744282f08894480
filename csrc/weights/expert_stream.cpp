#include "weights/expert_stream.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace edgert {
namespace {

using Clock = std::chrono::steady_clock;

// Experts of a group where not all fit: while they are computed, the room of the last group is filled again.
constexpr std::size_t kGroup = 8;
// Of predicted reads, if an expert is smaller: about what a disk reads while a layer is computed.
constexpr std::int64_t kPrefetchBytes = std::int64_t{2} << 20;
// Of the memory, for rows that wait to be packed.
constexpr std::int64_t kRawShare = 8;
// Of experts that are read at a time into memory that is free: as much as keeps a disk busy.
constexpr std::int64_t kFillBytes = std::int64_t{8} << 20;
// Of experts that are read to their end at a time: little, as what the router asks for next waits for it.
constexpr std::int64_t kRestBytes = std::int64_t{1} << 20;

}  // namespace

ExpertStream::ExpertStream(const std::vector<const WeightRequest*>& requests,
                           const std::vector<const WeightView*>& views, const ExpertPlan& plan, Pass& pass,
                           Reader& reader, ReadTag number)
    : views_(views),
      pass_(pass),
      reader_(reader),
      number_(number),
      place_of_(requests.size()),
      times_(requests.size()) {
  const std::size_t num_experts = plan.layers.empty() ? 0 : plan.layers[0].size() / 3;
  for (const std::vector<WeightId>& layer : plan.layers) {
    if (layer.size() != 3 * num_experts || num_experts == 0)
      throw std::invalid_argument("experts: found layers of different sizes, expected as many experts in each");
    for (std::size_t e = 0; e < num_experts; ++e) {
      const std::vector<WeightId> ids(layer.begin() + static_cast<std::ptrdiff_t>(3 * e),
                                      layer.begin() + static_cast<std::ptrdiff_t>(3 * e + 3));
      std::vector<const WeightRequest*> parts;
      for (std::size_t m = 0; m < 3; ++m) {
        parts.push_back(requests[static_cast<std::size_t>(ids[m])]);
        place_of_[static_cast<std::size_t>(ids[m])] = {static_cast<std::int32_t>(pieces_.size()),
                                                       static_cast<std::int32_t>(m)};
      }
      pieces_.push_back(make_piece(ids, parts, plan.miss_bits));
      states_.push_back(std::make_unique<State>());
      slot_bytes_ = std::max(slot_bytes_, pieces_.back().memory_bytes);
      raw_slot_bytes_ = std::max(raw_slot_bytes_, pieces_.back().raw_bytes);
    }
  }
  const std::int64_t sure_bytes = plan.bytes - plan.lent_bytes;
  std::int64_t num_raw = 0;
  if (raw_slot_bytes_ > 0) {
    const std::int64_t most = (sure_bytes - plan.top_k * slot_bytes_) / raw_slot_bytes_;
    num_raw = std::max<std::int64_t>(2, sure_bytes / kRawShare / raw_slot_bytes_);
    num_raw = std::max<std::int64_t>(1, std::min(num_raw, most));
  }
  num_raw_slots_ = static_cast<std::size_t>(num_raw);
  most_slots_ = static_cast<std::int64_t>(pieces_.size());
  least_slots_ = std::min(most_slots_, (sure_bytes - num_raw * raw_slot_bytes_) / slot_bytes_);
  if (least_slots_ < plan.top_k)
    throw std::invalid_argument("experts: found memory for " + std::to_string(std::max<std::int64_t>(0, least_slots_)) +
                                " of them, expected at least " + std::to_string(plan.top_k));
  const std::int64_t num_slots = slots_within(plan.bytes);
  most_slots_ = num_slots;
  memory_ = Memory(static_cast<std::size_t>(num_slots * slot_bytes_ + kVectorSlack));
  raw_ = Memory(static_cast<std::size_t>(num_raw > 0 ? num_raw * raw_slot_bytes_ + kVectorSlack : 0));
  for (std::int64_t i = num_slots; i-- > 0;) free_slots_.push_back(static_cast<std::int32_t>(i));
  for (std::int64_t i = num_raw; i-- > 0;) free_raw_slots_.push_back(static_cast<std::int32_t>(i));
  num_coarse_.resize(plan.layers.size());
  // What is in flight is not evicted: with predictions it leaves room for the experts of one token.
  const std::int64_t num_spare = least_slots_ - plan.top_k;
  if (plan.miss_bits > 0)
    max_rests_ =
        static_cast<std::size_t>(std::min(std::max<std::int64_t>(1, kRestBytes / slot_bytes_), (num_spare + 1) / 2));
  // Not where experts are packed: nobody packs what was not asked for, and it would hold its raw slot.
  if (num_raw_slots_ == 0)
    max_fills_ = static_cast<std::size_t>(std::clamp<std::int64_t>(kFillBytes / slot_bytes_, 1, (num_slots + 7) / 8));
  ExpertCacheOptions options;
  options.shape = {static_cast<std::int32_t>(plan.layers.size()), static_cast<std::int32_t>(num_experts)};
  options.top_k = plan.top_k;
  options.expert_bytes.assign(pieces_.size(), slot_bytes_);
  options.capacity_bytes = num_slots * slot_bytes_;
  if (plan.predictor != "none")
    options.prefetch_bytes = std::min({plan.top_k * slot_bytes_, std::max(slot_bytes_, kPrefetchBytes),
                                       (num_spare - static_cast<std::int64_t>(max_rests_)) * slot_bytes_});
  options.over_fetch = 2 * plan.top_k;
  cache_ = std::make_unique<ExpertCache>(options, make_policy(plan.policy, {.shape = options.shape}),
                                         make_predictor(plan.predictor, {.shape = options.shape, .top_k = plan.top_k}));
}

ExpertRef ExpertStream::ref(std::size_t piece) const {
  const auto num = static_cast<std::size_t>(cache_->shape().num_experts);
  return {static_cast<std::int32_t>(piece / num), static_cast<std::int32_t>(piece % num)};
}

std::int64_t ExpertStream::slots_within(std::int64_t num_bytes) const {
  const std::int64_t num = (num_bytes - static_cast<std::int64_t>(num_raw_slots_) * raw_slot_bytes_) / slot_bytes_;
  return std::clamp(num, least_slots_, most_slots_);
}

void ExpertStream::resize(std::int64_t num_bytes) {
  for (const std::size_t piece : waiting_) stop_waiting(piece);
  waiting_.clear();
  tidy();
  const std::int64_t before = num_slots(), now = slots_within(num_bytes);
  apply(cache_->resize(now * slot_bytes_), ReadPriority::predicted);
  for (std::int64_t i = before; i < now; ++i) free_slots_.push_back(static_cast<std::int32_t>(i));
  std::erase_if(free_slots_, [now](std::int32_t slot) { return slot >= now; });
  for (const std::unique_ptr<State>& s : states_) {
    if (s->slot < now) continue;
    std::uint8_t* const memory = memory_.data() + free_slots_.back() * slot_bytes_;
    std::copy_n(s->memory, slot_bytes_, memory);
    s->memory = memory;
    s->slot = free_slots_.back();
    free_slots_.pop_back();
  }
  if (now < before) memory_.give_back(static_cast<std::size_t>(now * slot_bytes_ + kVectorSlack), memory_.num_bytes());
}

// A pass that was stopped left reads that have ended, and some of its experts pinned.
void ExpertStream::tidy() {
  give_up_left();
  drain();
  for (std::int32_t layer = 0; layer < cache_->shape().num_layers; ++layer) cache_->release(layer);
  group_.clear();
}

void ExpertStream::begin_step(std::span<const std::int32_t> tokens) {
  const std::unique_lock<std::mutex> lock = pass_.lock();
  tidy();
  cache_->begin_step(tokens);
  apply(cache_->prefetch(0, {}), ReadPriority::predicted);
}

// Of one that is taken off waiting_: its read ends before it began.
void ExpertStream::stop_waiting(std::size_t piece) {
  states_[piece]->is_waiting = false;
  ended_.push_back({piece, ReadOutcome::cancelled, false});
}

// What a pass that was stopped left behind must not hold raw slots: what waits for one is given up, what has arrived is
// packed.
void ExpertStream::give_up_left() {
  const auto first_left = std::stable_partition(waiting_.begin(), waiting_.end(),
                                                [this](std::size_t piece) { return !states_[piece]->is_wanted; });
  for (auto it = first_left; it != waiting_.end(); ++it) stop_waiting(*it);
  waiting_.erase(first_left, waiting_.end());
  for (std::size_t piece = 0; piece < pieces_.size() && raw_slot_bytes_ > 0; ++piece) {
    State& s = *states_[piece];
    if (s.raw_slot < 0 || s.priority != ReadPriority::demand || s.residence.load() != Residence::resident) continue;
    for (std::size_t m = 0; m < pieces_[piece].matrices.size(); ++m)
      s.prepare(pieces_[piece], m, 0, pieces_[piece].matrices[m].num_strips);
    free_raw_slots_.push_back(std::exchange(s.raw_slot, -1));
  }
}

void ExpertStream::route(std::int32_t layer, std::span<const std::int32_t> experts, std::span<const float> weights,
                         std::span<const float> gate_logits, ExpertOrder order) {
  const std::unique_lock<std::mutex> lock = pass_.lock();
  if (pass_.is_stopped()) return;
  drain();
  layer_ = layer;
  order_ = order;
  experts_.assign(experts.begin(), experts.end());
  is_done_.assign(experts.size(), 0);
  group_.clear();
  const CacheDecision decision = cache_->route(layer, experts, weights);
  num_deferred_ = decision.num_deferred;
  for (std::size_t i = 0; i < experts.size(); ++i)
    if (cache_->found()[i] == ExpertCache::Found::late) prefer(index({layer, experts[i]}));
  apply(decision, ReadPriority::demand);
  if (layer + 1 < cache_->shape().num_layers)
    apply(cache_->prefetch(layer + 1, {.gate_logits = gate_logits, .known_experts = {}}), ReadPriority::predicted);
}

bool ExpertStream::next_group(std::vector<std::int32_t>& experts) {
  std::unique_lock<std::mutex> lock = pass_.lock();
  for (const std::int32_t expert : group_) cache_->release(layer_, expert);
  group_.clear();
  if (pass_.is_stopped()) return false;
  drain();
  admit();
  const bool is_ascending = order_ == ExpertOrder::ascending;
  while (!pass_.is_stopped()) {
    // Half of the room at most: the other half is read into.
    const auto half = static_cast<std::size_t>(std::max<std::int64_t>(1, num_slots() / 2));
    const std::size_t most = num_deferred_ > 0 ? std::min(kGroup, half) : experts_.size();
    is_ascending ? fill_group_in_order(most) : fill_group(most);
    if (std::find(is_done_.begin(), is_done_.end(), 0) == is_done_.end()) break;
    // Else the disk would stand still until the group is computed.
    if (is_ascending && num_deferred_ > 0 && num_reading_ == 0 && postpone_last()) continue;
    if (!group_.empty()) break;
    // All room is taken by predictions that are on their way.
    const Clock::time_point start = Clock::now();
    const bool has_ended = pass_.wait(lock, [this] { return !ended_.empty(); }, [this] { return num_reading_ == 0; });
    pass_.waited(-1, start);
    if (!has_ended) break;
    drain();
    admit();
  }
  if (group_.empty()) start_rests();
  if (group_.empty() && num_rests_ == 0) start_fills();
  experts = group_;
  return !group_.empty() && !pass_.is_stopped();
}

// Those that are there, or else those that are on their way. Not those that wait for a raw slot: the group may hold
// them all, and gives none back before its last expert is there.
void ExpertStream::fill_group(std::size_t most) {
  for (const bool wants_resident : {true, false}) {
    for (std::size_t i = 0; i < experts_.size() && group_.size() < most; ++i) {
      const std::size_t piece = index({layer_, experts_[i]});
      if (is_done_[i] != 0 || !cache_->is_pinned(layer_, experts_[i]) || states_[piece]->is_waiting) continue;
      if (wants_resident && states_[piece]->residence.load() != Residence::resident) continue;
      take(i);
    }
    if (!group_.empty()) return;
  }
}

// Into the group. What is computed at fewer bits is counted, and read to its end before others.
void ExpertStream::take(std::size_t i) {
  is_done_[i] = 1;
  group_.push_back(experts_[i]);
  const std::size_t piece = index({layer_, experts_[i]});
  if (!pieces_[piece].is_in_two() || !states_[piece]->is_coarse()) return;
  ++num_coarse_[static_cast<std::size_t>(layer_)];
  if (const auto it = std::find(coarse_.begin(), coarse_.end(), piece); it != coarse_.end())
    std::rotate(coarse_.begin(), it, it + 1);
}

// The first that is left, once it is there or on its way, and those that follow it and are there.
void ExpertStream::fill_group_in_order(std::size_t most) {
  for (std::size_t i = 0; i < experts_.size() && group_.size() < most; ++i) {
    if (is_done_[i] != 0) continue;
    const State& s = *states_[index({layer_, experts_[i]})];
    const bool is_there = s.residence.load() == Residence::resident;
    if (!cache_->is_pinned(layer_, experts_[i]) || s.is_waiting || (!is_there && !group_.empty())) return;
    take(i);
    if (!is_there) return;
  }
}

void ExpertStream::admit() {
  if (num_deferred_ == 0) return;
  const CacheDecision decision = cache_->admit();
  num_deferred_ = decision.num_deferred;
  apply(decision, ReadPriority::demand);
}

// Where the next one in order has no room, as all is taken by experts that are there and come later: the last of them
// makes room, and is read again. False: it has room, or there is none to be made.
bool ExpertStream::postpone_last() {
  const auto next = static_cast<std::size_t>(std::find(is_done_.begin(), is_done_.end(), 0) - is_done_.begin());
  if (cache_->is_pinned(layer_, experts_[next])) return false;
  for (std::size_t i = experts_.size(); --i > next;) {
    const bool is_there = states_[index({layer_, experts_[i]})]->residence.load() == Residence::resident;
    if (!is_there || !cache_->is_pinned(layer_, experts_[i])) continue;
    cache_->postpone(layer_, experts_[i]);
    admit();
    return true;
  }
  return false;
}

void ExpertStream::apply(const CacheDecision& decision, ReadPriority priority) {
  for (const ExpertRef expert : decision.evict) forget(index(expert));
  for (const ExpertRef expert : decision.cancel) {
    const std::size_t piece = index(expert);
    states_[piece]->is_wanted = states_[piece]->reads_on = false;
    if (states_[piece]->is_waiting) {
      waiting_.erase(std::find(waiting_.begin(), waiting_.end(), piece));
      stop_waiting(piece);
      continue;
    }
    for (std::size_t s = 0; s < pieces_[piece].segments.size(); ++s) reader_.cancel(segment_tag(number_ | piece, s));
  }
  for (const ExpertRef expert : decision.load) {
    State& s = *states_[index(expert)];
    s.priority = priority;
    s.is_wanted = priority == ReadPriority::demand;
    s.reads_on = !s.is_wanted;
    s.slot = free_slots_.back();
    free_slots_.pop_back();
    s.memory = memory_.data() + s.slot * slot_bytes_;
    begin_read(index(expert));
  }
}

// Predictions leave half of the raw slots, and at least one, to what the router has asked for: only that is packed for
// certain. Where experts are computed in order, the last slot is for the one that is packed next.
bool ExpertStream::can_begin(std::size_t piece) const {
  if (!pieces_[piece].is_packed()) return true;
  std::size_t left = 0;
  if (states_[piece]->priority != ReadPriority::demand) {
    left = std::max<std::size_t>(1, num_raw_slots_ / 2);
  } else if (order_ == ExpertOrder::ascending && !is_next_read(piece)) {
    left = 1;
  }
  return free_raw_slots_.size() > left;
}

// Of the experts that are left, has every one before it begun to be read?
bool ExpertStream::is_next_read(std::size_t piece) const {
  for (std::size_t i = 0; i < experts_.size(); ++i) {
    const std::size_t other = index({layer_, experts_[i]});
    if (other == piece) return true;
    if (is_done_[i] == 0 && (states_[other]->is_waiting || states_[other]->residence.load() == Residence::absent))
      return false;
  }
  return false;
}

// Reads the piece, or lets it wait for a raw slot.
void ExpertStream::begin_read(std::size_t piece) {
  State& s = *states_[piece];
  if (!can_begin(piece)) {
    s.is_waiting = true;
    const auto goes_later = [&](std::size_t other) {
      return s.priority == ReadPriority::demand && (states_[other]->priority != ReadPriority::demand || other > piece);
    };
    waiting_.insert(std::find_if(waiting_.begin(), waiting_.end(), goes_later), piece);
    return;
  }
  if (pieces_[piece].is_packed()) {
    s.raw_slot = free_raw_slots_.back();
    free_raw_slots_.pop_back();
    s.raw = raw_.data() + s.raw_slot * raw_slot_bytes_;
  }
  ++num_reading_;
  s.read(reader_, pieces_[piece], number_ | piece, s.priority);
}

void ExpertStream::start_waiting() {
  while (!waiting_.empty() && can_begin(waiting_.front()) && !pass_.is_stopped()) {
    const std::size_t piece = waiting_.front();
    waiting_.pop_front();
    states_[piece]->is_waiting = false;
    begin_read(piece);
  }
}

void ExpertStream::forget(std::size_t piece) {
  State& s = *states_[piece];
  if (s.raw_slot >= 0) free_raw_slots_.push_back(std::exchange(s.raw_slot, -1));
  free_slots_.push_back(std::exchange(s.slot, -1));
  s.residence.store(Residence::absent);
  if (pieces_[piece].is_in_two()) std::erase(coarse_, piece);
}

void ExpertStream::begin_rest(std::size_t piece) {
  State& s = *states_[piece];
  s.is_reading_rest = true;
  ++num_rests_;
  ++num_reading_;
  s.read_rest(reader_, pieces_[piece], number_ | piece, ReadPriority::predicted);
}

// When the experts of a layer are there, the disk has time for what they lack.
void ExpertStream::start_rests() {
  while (num_rests_ < max_rests_ && !coarse_.empty() && !pass_.is_stopped()) {
    const std::size_t piece = coarse_.front();
    coarse_.pop_front();
    const ExpertRef expert = ref(piece);
    cache_->reread(expert.layer, expert.expert);
    begin_rest(piece);
  }
}

// The same for memory that is still free.
void ExpertStream::start_fills() {
  while (num_fills_ < max_fills_ && !pass_.is_stopped()) {
    const CacheDecision decision = cache_->fill(layer_);
    if (decision.load.empty()) return;
    states_[index(decision.load[0])]->is_fill = true;
    ++num_fills_;
    apply(decision, ReadPriority::predicted);
  }
}

// A prediction that came true while it was on its way.
void ExpertStream::prefer(std::size_t piece) {
  State& s = *states_[piece];
  if (s.residence.load() == Residence::resident) return;  // the rest of it is on its way, and not waited for
  s.reads_on = false;
  s.priority = ReadPriority::demand;
  s.is_wanted = true;
  if (s.is_waiting) {
    waiting_.erase(std::find(waiting_.begin(), waiting_.end(), piece));
    s.is_waiting = false;
    begin_read(piece);
    return;
  }
  for (std::size_t i = 0; i < pieces_[piece].segments.size(); ++i)
    reader_.set_priority(segment_tag(number_ | piece, i), ReadPriority::demand);
}

void ExpertStream::read_ended(ReadTag number, ReadOutcome outcome) {
  const auto piece = static_cast<std::size_t>(number);
  State& s = *states_[piece];
  if (!s.ended(outcome)) return;
  --num_reading_;
  if (s.is_reading_rest)
    return ended_.push_back({piece, s.has_failed() ? ReadOutcome::cancelled : ReadOutcome::complete, true});
  if (s.has_failed() && s.raw_slot >= 0) free_raw_slots_.push_back(std::exchange(s.raw_slot, -1));
  if (s.has_failed() && s.is_wanted && !pass_.is_stopped()) return begin_read(piece);
  if (!s.has_failed()) s.residence.store(Residence::resident, std::memory_order_release);
  if (!s.has_failed() && pieces_[piece].is_in_two() && s.reads_on && pass_.is_running() && !pass_.is_stopped())
    return begin_rest(piece);
  ended_.push_back({piece, s.has_failed() ? ReadOutcome::cancelled : ReadOutcome::complete, false});
}

// Tells the cache what has happened since the last time.
void ExpertStream::drain() {
  for (const auto& [piece, outcome, is_rest] : ended_) {
    const ExpertRef expert = ref(piece);
    if (std::exchange(states_[piece]->is_fill, false)) --num_fills_;
    if (is_rest || outcome == ReadOutcome::complete) {
      cache_->arrived(expert.layer, expert.expert);
      if (!pieces_[piece].is_in_two()) continue;
      if (is_rest) --num_rests_;
      states_[piece]->is_reading_rest = false;
      if (is_rest && outcome == ReadOutcome::complete) {
        states_[piece]->set_coarse(false);
      } else {
        is_rest ? coarse_.push_back(piece) : coarse_.push_front(piece);
      }
    } else {
      forget(piece);
      cache_->cancelled(expert.layer, expert.expert);
    }
  }
  ended_.clear();
  start_waiting();
}

bool ExpertStream::acquire(WeightId id, std::int32_t begin, std::int32_t end, StripLease& lease) {
  if (pass_.is_stopped()) return false;
  const Place place = place_of_[static_cast<std::size_t>(id)];
  const auto piece = static_cast<std::size_t>(place.piece);
  State& s = *states_[piece];
  if (s.residence.load(std::memory_order_acquire) != Residence::resident) {
    std::unique_lock<std::mutex> lock = pass_.lock();
    const Clock::time_point start = Clock::now();
    const bool is_there = pass_.wait(
        lock, [&] { return s.residence.load() == Residence::resident; }, [this] { return num_reading_ == 0; });
    StreamTimes& times = times_[static_cast<std::size_t>(id)];
    times.waited_s += pass_.waited(id, start);
    ++times.num_late;
    if (!is_there) return false;
  }
  const PieceMatrix& m = pieces_[piece].matrices[static_cast<std::size_t>(place.matrix)];
  bool is_last = false;
  const auto prepare = [&] { is_last = s.prepare(pieces_[piece], static_cast<std::size_t>(place.matrix), begin, end); };
  if (!s.is_prepared() && !pass_.attempt(prepare)) return false;
  if (is_last) {
    const std::unique_lock<std::mutex> lock = pass_.lock();
    if (s.raw_slot >= 0) free_raw_slots_.push_back(std::exchange(s.raw_slot, -1));
    start_waiting();
  }
  lease.end = end;
  lease.view = piece_view(m, *views_[static_cast<std::size_t>(id)], s.memory);
  if (s.is_coarse()) lease.view.format = m.leading_format;
  return true;
}

std::vector<ExpertCounters> ExpertStream::counters() const {
  std::vector<ExpertCounters> counters(cache_->counters().begin(), cache_->counters().end());
  for (std::size_t layer = 0; layer < counters.size(); ++layer) counters[layer].coarse = num_coarse_[layer];
  return counters;
}

void ExpertStream::add_times(std::vector<StreamTimes>& times) const {
  for (std::size_t i = 0; i < times.size(); ++i) {
    times[i].num_late += times_[i].num_late;
    times[i].waited_s += times_[i].waited_s;
  }
}

}  // namespace edgert
