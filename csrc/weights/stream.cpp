#include "weights/stream.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace edgert {
namespace {

using Clock = std::chrono::steady_clock;

// Of what may be lent: a step in which it is taken; it is taken back in two, so that the ring seldom moves.
constexpr std::int64_t kLentSteps = 64;
constexpr ReadTag kLookup = ReadTag{1} << 40, kExpert = ReadTag{1} << 41,
                  kNeurons = ReadTag{1} << 42;  // in the number of a piece

std::int32_t num_strips(const WeightRequest& r) {
  return static_cast<std::int32_t>((r.rows + kStripRows - 1) / kStripRows);
}

}  // namespace

WeightStream::WeightStream(std::span<const File> files, std::span<const WeightRequest* const> requests,
                           std::span<const WeightView* const> views, const StreamPlan& plan,
                           const ReaderOptions& options)
    : files_(files),
      requests_(requests.begin(), requests.end()),
      views_(views.begin(), views.end()),
      of_(requests.size()),
      pass_([this] { reader_->cancel_all(); }),
      times_(requests.size()) {
  cut(plan);
  order_locks(plan);
  std::int64_t raw_bytes = 0, largest_raw = 0;
  for (const Piece& piece : pieces_) {
    largest_ = std::max(largest_, piece.memory_bytes);
    largest_raw = std::max(largest_raw, piece.raw_bytes);
  }
  const auto whole = [](std::int64_t bytes) { return bytes / kDirectAlignment * kDirectAlignment; };
  if (largest_raw > 0) raw_bytes = std::max(whole(plan.ring_bytes / 2), 2 * largest_raw);
  ring_bytes_ = std::max(whole(plan.ring_bytes - raw_bytes), 2 * largest_);
  pool_bytes_ = std::max(whole(plan.pool_bytes - raw_bytes), ring_bytes_);
  expert_bytes_ = plan.experts.bytes;
  max_lent_bytes_ = pieces_.empty() ? plan.lent_bytes : std::min(whole(plan.lent_bytes), pool_bytes_ - ring_bytes_);
  lent_step_ = std::max<std::int64_t>(1, (max_lent_bytes_ + kLentSteps - 1) / kLentSteps);
  pool_ = Memory(static_cast<std::size_t>(pool_bytes_ + kVectorSlack));
  raw_ = Memory(static_cast<std::size_t>(raw_bytes > 0 ? raw_bytes + kVectorSlack : 0));
  raw_ring_.reset(0, raw_bytes);
  end_ = pool_bytes_;
  limit_ = kept_limit(end_);
  ring_.reset(limit_, end_);
  reader_ = std::make_unique<Reader>(
      files, options,
      [this](ReadTag tag, ReadOutcome outcome, const std::string& error) { read_ended(tag, outcome, error); });
  if (plan.experts.bytes > 0) {
    ExpertPlan experts = plan.experts;
    if (pieces_.empty()) experts.lent_bytes = plan.lent_bytes;
    experts_ = std::make_unique<ExpertStream>(requests_, views_, experts, pass_, *reader_, kExpert);
  }
  if (!plan.neurons.weights.empty())
    neurons_ = std::make_unique<NeuronStream>(requests_, plan.neurons, pass_, *reader_, kNeurons);
}

WeightStream::~WeightStream() {
  stop();
  reader_.reset();
}

void WeightStream::cut(const StreamPlan& plan) {
  for (const StreamPlan::Cut& c : plan.cuts) {
    const WeightRequest& r = *requests_[static_cast<std::size_t>(c.id)];
    const auto unit = static_cast<std::int32_t>(row_unit(r) / kStripRows);
    of_[static_cast<std::size_t>(c.id)] = {static_cast<std::int32_t>(pieces_.size()),
                                           static_cast<std::int32_t>(c.first_strips.size())};
    for (std::size_t i = 0; i < c.first_strips.size(); ++i) {
      const std::int32_t first = c.first_strips[i];
      const std::int32_t end = i + 1 < c.first_strips.size() ? c.first_strips[i + 1] : num_strips(r);
      if (first % unit != 0 || first >= end || (i == 0 && first != 0))
        throw std::invalid_argument(r.name + ": found a piece from strip " + std::to_string(first) + " to " +
                                    std::to_string(end) + ", expected ascending multiples of " + std::to_string(unit));
      pieces_.push_back(make_piece(c.id, r, first, end - first));
    }
  }
  for (std::size_t i = 0; i < pieces_.size(); ++i) states_.push_back(std::make_unique<State>());
}

// Gives each piece the place that it has if it is kept.
void WeightStream::order_locks(const StreamPlan& plan) {
  lock_places_.assign(pieces_.size(), -1);
  std::int64_t end = 0;
  for (const auto& [index, piece] : plan.lock_order) {
    if (index < 0 || static_cast<std::size_t>(index) >= plan.cuts.size())
      throw std::invalid_argument("lock order: found matrix " + std::to_string(index) + ", expected one that is cut");
    const Streamed& s = of_[static_cast<std::size_t>(plan.cuts[static_cast<std::size_t>(index)].id)];
    if (piece < 0 || piece >= s.num_pieces || lock_places_[static_cast<std::size_t>(s.first_piece + piece)] >= 0)
      throw std::invalid_argument("lock order: found piece " + std::to_string(piece) + ", expected each once");
    lock_places_[static_cast<std::size_t>(s.first_piece + piece)] = end;
    end += at(s.first_piece + piece).memory_bytes;
  }
  if (std::find(lock_places_.begin(), lock_places_.end(), -1) == lock_places_.end()) all_kept_bytes_ = end;
}

// Of a pool that ends there: bytes of kept pieces while nothing is shared by rounds. Where all fit, no ring is needed.
std::int64_t WeightStream::kept_limit(std::int64_t end) const {
  return all_kept_bytes_ >= 0 && all_kept_bytes_ <= end ? end : end - ring_bytes_;
}

std::int32_t WeightStream::piece_of(const Streamed& weight, std::int32_t strip) const {
  const auto first = pieces_.begin() + weight.first_piece;
  const auto it = std::upper_bound(first, first + weight.num_pieces, strip, [](std::int32_t s, const Piece& piece) {
    return s < piece.matrices[0].first_strip;
  });
  return static_cast<std::int32_t>(it - pieces_.begin()) - 1;
}

void WeightStream::set_uses(const std::vector<Use>& uses, std::size_t num_lookups) {
  lookups_.resize(num_lookups);
  segment_of_.assign(pieces_.size(), 0);
  for (const Use& use : uses) {
    Streamed& s = of_[static_cast<std::size_t>(use.id)];
    s.is_for_logits |= use.is_for_logits;
    std::fill_n(segment_of_.begin() + s.first_piece, s.num_pieces, use.segment);
  }
  // With all lent that may be: what can be shared then can be shared always.
  lent_bytes_ = max_lent_bytes_;
  shared_limit_ = find_shared_limit();
  std::unique_lock<std::mutex> lock = pass_.lock();
  lend(0, lock);
}

// The most bytes of kept pieces beside which the others of every segment fit the ring together; -1: there is no room.
std::int64_t WeightStream::find_shared_limit() const {
  const std::int64_t pool = pool_end();
  if (kept_limit(pool) == pool) return pool;
  const auto num_segments =
      segment_of_.empty() ? 1 : static_cast<std::size_t>(*std::max_element(segment_of_.begin(), segment_of_.end())) + 1;
  std::vector<std::int64_t> streamed(num_segments);
  std::vector<std::pair<std::int64_t, std::size_t>> kept;  // (end, piece)
  const auto stream = [&](std::size_t i) {
    if (!of_[static_cast<std::size_t>(pieces_[i].matrices[0].id)].is_for_logits)
      streamed[static_cast<std::size_t>(segment_of_[i])] += pieces_[i].memory_bytes;
  };
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const std::int64_t end = lock_places_[i] + pieces_[i].memory_bytes;
    if (lock_places_[i] >= 0 && end <= pool - ring_bytes_) {
      kept.emplace_back(end, i);
    } else {
      stream(i);
    }
  }
  std::sort(kept.begin(), kept.end());
  for (;;) {
    const std::int64_t needed = *std::max_element(streamed.begin(), streamed.end()) + 2 * largest_;
    const std::int64_t limit = std::min(pool - ring_bytes_, pool - needed);
    if (limit < 0 || kept.empty() || kept.back().first <= limit)
      return limit < 0 ? -1 : limit / kDirectAlignment * kDirectAlignment;
    stream(kept.back().second);
    kept.pop_back();
  }
}

// In steps: each one moves the ring, or experts.
void WeightStream::lend(std::int64_t num_bytes, std::unique_lock<std::mutex>& lock) {
  const std::int64_t lent = std::min(max_lent_bytes_, round_up(num_bytes, lent_step_));
  if (lent <= lent_bytes_ && lent + 2 * lent_step_ > lent_bytes_) return;
  if (pieces_.empty()) {
    lent_bytes_ = lent;
    if (experts_ == nullptr || !experts_->can_resize(expert_bytes_ - lent)) return;
    reader_->cancel_all();
    pass_.settle(lock, [this] { return is_settled(); });
    experts_->resize(expert_bytes_ - lent);
    return;
  }
  lent_bytes_ = std::min(max_lent_bytes_, round_up(lent, kDirectAlignment));
  if (shared_limit_ >= 0) shared_limit_ = find_shared_limit();
}

std::int32_t WeightStream::uses_of_pass(std::int32_t piece) const {
  const Streamed& s = of_[static_cast<std::size_t>(at(piece).matrices[0].id)];
  return s.is_for_logits ? num_logits_rounds_ : num_rounds_;
}

// Kept, and holding no raw memory that others wait for.
bool WeightStream::stays_between_passes(std::int32_t piece) const {
  const State& s = *states_[static_cast<std::size_t>(piece)];
  return s.is_kept && s.raw_place < 0;
}

void WeightStream::set_limit(std::int64_t limit, std::int64_t end, std::unique_lock<std::mutex>& lock) {
  if (limit == limit_ && end == end_) return;
  reader_->cancel_all();
  pass_.settle(lock, [this] { return is_settled(); });
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(pieces_.size()); ++i) {
    const bool stays =
        stays_between_passes(i) && lock_places_[static_cast<std::size_t>(i)] + at(i).memory_bytes <= limit;
    if (state(i).residence.load() == Residence::resident && !stays) drop(i);
  }
  limit_ = limit;
  end_ = end;
  ring_.reset(limit, end);
  pool_.give_back(static_cast<std::size_t>(end), pool_.num_bytes());
  raw_ring_.reset(0, raw_ring_.capacity());
  is_next_lap_ = false;
}

void WeightStream::begin_pass(std::int32_t num_rounds, std::int32_t num_logits_rounds, std::int64_t lent_bytes,
                              std::function<bool()> should_stop) {
  std::unique_lock<std::mutex> lock = pass_.lock();
  num_rounds_ = num_rounds;
  num_logits_rounds_ = num_logits_rounds;
  lend(lent_bytes, lock);
  const std::int64_t end = pool_end();
  set_limit(num_rounds > 1 ? shared_limit_ : kept_limit(end), end, lock);
  if (!is_next_lap_) cursor_ = 0;
  is_next_lap_ = false;
  pass_.begin(std::move(should_stop));
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(pieces_.size()); ++i) {
    State& s = state(i);
    s.strips_left.store(uses_of_pass(i) * at(i).matrices[0].num_strips);
    s.was_late = false;
    if (uses_of_pass(i) > 0) continue;
    // Read ahead for a pass that does not need it.
    if (s.residence.load() == Residence::resident && !stays_between_passes(i)) drop(i);
    if (s.residence.load() == Residence::reading && (!s.is_kept || at(i).is_packed())) s.is_unwanted = true;
  }
  advance();
}

bool WeightStream::end_pass() {
  std::unique_lock<std::mutex> lock = pass_.lock();
  pass_.end();
  if (!pass_.is_stopped()) return pass_.reset();
  reader_->cancel_all();
  pass_.settle(lock, [this] { return is_settled(); });
  // What could not be prepared is read again.
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(pieces_.size()); ++i)
    if (state(i).residence.load() == Residence::resident && !(stays_between_passes(i) && state(i).is_prepared()))
      drop(i);
  is_next_lap_ = false;
  cursor_ = 0;
  return pass_.reset();
}

void WeightStream::stop() {
  const std::unique_lock<std::mutex> lock = pass_.lock();
  pass_.stop();
}

// Asks for pieces in the order of their use until memory ends, or the pass to come would overtake this one.
void WeightStream::advance() {
  const auto end = static_cast<std::int32_t>(pieces_.size());
  while (pass_.is_running() && !pass_.is_stopped() && end > 0) {
    if (cursor_ == end) {
      if (is_next_lap_) return;
      is_next_lap_ = true;
      cursor_ = 0;
    }
    State& s = state(cursor_);
    // Also what its last user is about to drop: it must be asked for again.
    const bool is_leaving = !s.is_kept && s.was_used.load() && s.residence.load() == Residence::resident;
    if (is_next_lap_ && (s.strips_left.load() > 0 || is_leaving)) return;
    const bool is_skipped = !is_next_lap_ && uses_of_pass(cursor_) == 0;
    if (s.residence.load() == Residence::reading && s.is_unwanted) return;
    if (!is_skipped && s.residence.load() == Residence::absent && !request(cursor_)) return;
    ++cursor_;
  }
}

// False: there is no room.
bool WeightStream::request(std::int32_t index) {
  const Piece& piece = at(index);
  State& s = state(index);
  const std::int64_t place = lock_places_[static_cast<std::size_t>(index)];
  s.is_kept = place >= 0 && place + piece.memory_bytes <= limit_;
  if (piece.is_packed() && (s.raw_place = raw_ring_.take(piece.raw_bytes)) < 0) return false;
  s.place = s.is_kept ? place : ring_.take(piece.memory_bytes);
  if (s.place < 0) {
    if (piece.is_packed()) raw_ring_.undo_take();
    s.raw_place = -1;
    return false;
  }
  s.memory = pool_.data() + s.place;
  s.raw = piece.is_packed() ? raw_.data() + s.raw_place : nullptr;
  s.is_unwanted = false;
  s.was_used.store(false);
  ++num_reading_;
  s.read(*reader_, piece, static_cast<ReadTag>(index), ReadPriority::planned);
  return true;
}

// REQUIRES: the piece is not being read.
void WeightStream::drop(std::int32_t index) {
  State& s = state(index);
  if (!s.was_used.load()) wasted_bytes_ += at(index).file_bytes;
  if (!s.is_kept) ring_.give_back(s.place);
  if (s.raw_place >= 0) raw_ring_.give_back(s.raw_place);
  s.place = s.raw_place = -1;
  s.is_kept = s.is_unwanted = false;
  s.residence.store(Residence::absent);
}

void WeightStream::read_ended(ReadTag tag, ReadOutcome outcome, const std::string& error) {
  const std::unique_lock<std::mutex> lock = pass_.lock();
  if (outcome == ReadOutcome::failed) pass_.fail(error);
  const ReadTag number = tag >> kSegmentBits;
  if ((number & kExpert) != 0) {
    experts_->read_ended(number & ~kExpert, outcome);
  } else if ((number & kNeurons) != 0) {
    neurons_->read_ended(number & ~kNeurons, outcome);
  } else if ((number & kLookup) != 0) {
    Lookup& lookup = lookups_[static_cast<std::size_t>(number & ~kLookup)];
    lookup.has_failed |= outcome != ReadOutcome::complete;
    --lookup.segments_left;
  } else if (const auto index = static_cast<std::int32_t>(number); state(index).ended(outcome)) {
    --num_reading_;
    if (state(index).has_failed() || state(index).is_unwanted) {
      drop(index);
      advance();
    } else {
      state(index).residence.store(Residence::resident, std::memory_order_release);
    }
  }
  pass_.ring();
}

bool WeightStream::acquire(WeightId id, std::int32_t begin, std::int32_t end, StripLease& lease) {
  const Streamed& w = of_[static_cast<std::size_t>(id)];
  if (w.num_pieces == 0) return experts_->acquire(id, begin, end, lease);
  if (is_stopped()) return false;
  lease.piece = piece_of(w, begin);
  State& s = state(lease.piece);
  const PieceMatrix& m = at(lease.piece).matrices[0];
  lease.end = std::min(end, m.first_strip + m.num_strips);
  if (s.residence.load(std::memory_order_acquire) != Residence::resident) {
    std::unique_lock<std::mutex> lock = pass_.lock();
    const Clock::time_point start = Clock::now();
    advance();
    const bool is_there =
        pass_.wait(lock, [&] { return s.residence.load() == Residence::resident; }, [&] { return num_reading_ == 0; });
    StreamTimes& times = times_[static_cast<std::size_t>(id)];
    times.waited_s += pass_.waited(id, start);
    if (!std::exchange(s.was_late, true)) ++times.num_late;
    if (!is_there) return false;
  }
  s.was_used.store(true, std::memory_order_relaxed);
  if (!s.is_prepared() && !prepare(lease.piece, begin, lease.end)) return false;
  lease.view = piece_view(m, *views_[static_cast<std::size_t>(id)], s.memory);
  return true;
}

// A thread prepares the strips that it will read, before it reads them.
bool WeightStream::prepare(std::int32_t index, std::int32_t begin, std::int32_t end) {
  State& s = state(index);
  bool is_last = false;
  if (!pass_.attempt([&] { is_last = s.prepare(at(index), 0, begin, end); })) return false;
  if (!is_last || !at(index).is_packed()) return true;
  const std::unique_lock<std::mutex> lock = pass_.lock();
  raw_ring_.give_back(std::exchange(s.raw_place, -1));
  advance();
  pass_.ring();
  return true;
}

void WeightStream::release(const StripLease& lease, std::int32_t begin) {
  if (lease.piece < 0) return;
  State& s = state(lease.piece);
  const std::int32_t used = lease.end - begin;
  if (s.strips_left.fetch_sub(used, std::memory_order_acq_rel) != used) return;
  const std::unique_lock<std::mutex> lock = pass_.lock();
  if (!s.was_late) ++times_[static_cast<std::size_t>(at(lease.piece).matrices[0].id)].num_hits;
  if (!s.is_kept) drop(lease.piece);
  advance();
  pass_.ring();
}

bool WeightStream::look_up(WeightId id, std::int64_t row, std::size_t slot, WeightView& view) {
  const WeightRequest& r = *requests_[static_cast<std::size_t>(id)];
  const auto strip = static_cast<std::int32_t>(row / kStripRows);
  const auto unit = static_cast<std::int32_t>(row_unit(r) / kStripRows);
  const std::int32_t first = strip / unit * unit;
  const Piece piece = make_piece(id, r, first, std::min(unit, num_strips(r) - first));
  std::unique_lock<std::mutex> lock = pass_.lock();
  if (is_stopped()) return false;
  Lookup& lookup = lookups_[slot];
  const std::int64_t needed = piece.memory_bytes + piece.raw_bytes + kVectorSlack;
  if (static_cast<std::int64_t>(lookup.memory.num_bytes()) < needed)
    lookup.memory = Memory(static_cast<std::size_t>(needed));
  lookup.id = id;
  lookup.segments_left = static_cast<std::int32_t>(piece.segments.size());
  lookup.has_failed = false;
  std::uint8_t* memory = lookup.memory.data();
  std::uint8_t* raw = piece.is_packed() ? memory + piece.memory_bytes : nullptr;
  for (std::size_t i = 0; i < piece.segments.size(); ++i) {
    const PieceSegment& segment = piece.segments[i];
    reader_->submit({segment_tag(kLookup | slot, i), segment.file, segment.offset, segment.length,
                     (raw ? raw : memory) + segment.place, ReadPriority::demand});
  }
  const Clock::time_point start = Clock::now();
  const auto has_ended = [&] { return lookup.segments_left == 0; };
  pass_.wait(lock, has_ended, [] { return false; });
  // Also when the pass is stopped: the reads write to this memory until they have ended.
  pass_.settle(lock, has_ended);
  StreamTimes& times = times_[static_cast<std::size_t>(id)];
  times.waited_s += pass_.waited(id, start);
  if (lookup.has_failed || is_stopped()) return false;
  lock.unlock();
  const PieceMatrix& m = piece.matrices[0];
  const auto prepare_all = [&] { prepare_strips(m, memory, raw, m.first_strip, m.first_strip + m.num_strips); };
  if (piece.needs_preparing && !pass_.attempt(prepare_all)) return false;
  view = piece_view(m, *views_[static_cast<std::size_t>(id)], memory);
  return true;
}

void WeightStream::start_trace() {
  const std::unique_lock<std::mutex> lock = pass_.lock();
  pass_.start_trace();
  reader_->start_trace();
}

StreamTrace WeightStream::stop_trace() {
  const std::unique_lock<std::mutex> lock = pass_.lock();
  StreamTrace trace{pass_.stop_trace(), {}};
  for (const ReadEvent& event : reader_->stop_trace()) {
    const ReadTag number = event.tag >> kSegmentBits;
    StreamTrace::Read& read = trace.reads.emplace_back(StreamTrace::Read{event});
    if ((number & kLookup) != 0) {
      read.weight = lookups_[static_cast<std::size_t>(number & ~kLookup)].id;
      continue;
    }
    if ((number & kNeurons) != 0) {
      read.weight = neurons_->weight_of(number & ~kNeurons);
      continue;
    }
    const bool is_expert = (number & kExpert) != 0;
    const Piece& piece = is_expert ? experts_->piece(number & ~kExpert) : at(static_cast<std::int32_t>(number));
    read.weight = piece.matrices[0].id;
    if (is_expert) continue;
    read.first_strip = piece.matrices[0].first_strip;
    read.num_strips = piece.matrices[0].num_strips;
  }
  return trace;
}

StreamCounters WeightStream::counters() const {
  const std::unique_lock<std::mutex> lock = pass_.lock();
  StreamCounters counters;
  counters.reads = reader_->counters();
  counters.wasted_bytes = wasted_bytes_;
  counters.weights = times_;
  if (experts_ != nullptr) {
    counters.num_expert_slots = experts_->num_slots();
    counters.experts = experts_->counters();
    experts_->add_times(counters.weights);
  }
  if (neurons_ != nullptr) {
    counters.neurons = neurons_->counters();
    neurons_->add_times(counters.weights);
  }
  for (std::size_t i = 0; i < pieces_.size(); ++i)
    if (states_[i]->is_kept && states_[i]->residence.load() == Residence::resident)
      counters.locked_bytes += pieces_[i].memory_bytes;
  return counters;
}

}  // namespace edgert
