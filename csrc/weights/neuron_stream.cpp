#include "weights/neuron_stream.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "weights/piece_state.h"

namespace edgert {
namespace {

using Clock = std::chrono::steady_clock;

// One read. Neighbouring sectors are read at once up to this, or one record if that is larger.
constexpr std::int64_t kReadBytes = std::int64_t{32} << 10;
constexpr std::int64_t kMinWindows = 2, kMaxWindows = 16;
constexpr std::int64_t kWindowShare = 8;  // of the memory, for windows
// Of the slots, for the neurons of one matrix that are about to be used; at least two groups.
constexpr std::int64_t kOpenShare = 4, kMinOpen = 2 * kGroupColumns;
// What is known of a neuron is an average over the tokens so far, and later one in which the last of so many counts
// most; what it begins with counts as a few tokens.
constexpr std::int32_t kFrequencyTokens = 64, kFirstTokens = 8;
constexpr float kLastUse = 0.1f;  // what a use by the last token is worth beside it
constexpr int kLayerBits = 16;    // of a read's number, for its window

std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

std::int64_t first_sector(std::int64_t offset) { return offset - window_lead(offset); }

}  // namespace

NeuronStream::NeuronStream(const std::vector<const WeightRequest*>& requests, const NeuronPlan& plan, Pass& pass,
                           Reader& reader, ReadTag number)
    : pass_(pass), reader_(reader), number_(number), layer_of_(requests.size(), -1) {
  std::int64_t largest = 0, most_neurons = 0;
  if (!plan.frequency.empty() && plan.frequency.size() != plan.weights.size())
    throw std::invalid_argument("neurons: found how often they are active of " + std::to_string(plan.frequency.size()) +
                                " matrices, expected " + std::to_string(plan.weights.size()));
  for (const WeightId id : plan.weights) {
    const WeightRequest& r = *requests[index(id)];
    layer_of_[index(id)] = static_cast<std::int32_t>(layers_.size());
    Layer& layer = layers_.emplace_back();
    layer.id = id;
    layer.part = &r.parts.back();
    layer.bits = r.neuron_bits;
    layer.record_bytes = neuron_bytes(r.neuron_bits, r.rows);
    layer.frequency.assign(static_cast<std::size_t>(r.cols), 0.0f);
    layer.num_tokens = kFirstTokens;
    layer.can_fill = !plan.frequency.empty();
    if (layer.can_fill) {
      const std::vector<float>& known = plan.frequency[layers_.size() - 1];
      if (std::ssize(known) != r.cols)
        throw std::invalid_argument(r.name + ": found how often " + std::to_string(known.size()) +
                                    " neurons are active, expected " + std::to_string(r.cols));
      layer.frequency = known;
    }
    layer.slot_of.assign(static_cast<std::size_t>(r.cols), -1);
    largest = std::max(largest, layer.record_bytes);
    most_neurons = std::max(most_neurons, r.cols);
  }
  slot_bytes_ = largest;
  window_bytes_ = window_bytes(std::max(kReadBytes, largest));
  const std::int64_t num_windows = std::clamp(plan.bytes / kWindowShare / window_bytes_, kMinWindows, kMaxWindows);
  std::int64_t num_neurons = 0;
  for (const Layer& layer : layers_) num_neurons += std::ssize(layer.slot_of);
  const std::int64_t num_slots = std::min(num_neurons, (plan.bytes - num_windows * window_bytes_) / slot_bytes_);
  const std::int64_t least = std::min(kMinOpen, most_neurons);
  if (num_slots < least)
    throw std::invalid_argument("neurons: found memory for " + std::to_string(std::max<std::int64_t>(0, num_slots)) +
                                " of them, expected at least " + std::to_string(least));
  const std::int64_t num_open = std::min(most_neurons, std::max(least, num_slots / kOpenShare));
  quota_ = static_cast<std::size_t>((num_slots - num_open) / std::ssize(layers_));
  memory_ = Memory(static_cast<std::size_t>(num_slots * slot_bytes_ + kVectorSlack));
  windows_ = Memory(static_cast<std::size_t>(num_windows * window_bytes_));
  for (std::int64_t i = num_slots; i-- > 0;) free_slots_.push_back(static_cast<std::int32_t>(i));
  for (std::int64_t i = num_windows; i-- > 0;) free_windows_.push_back(static_cast<std::size_t>(i));
  reading_.resize(static_cast<std::size_t>(num_windows));
  max_fills_ = static_cast<std::size_t>(num_windows / 2);
  const std::size_t most_groups = static_cast<std::size_t>((most_neurons + kGroupColumns - 1) / kGroupColumns);
  left_of_group_ = std::make_unique<std::atomic<std::int32_t>[]>(most_groups);
  group_starts_.reserve(most_groups + 1);
  for (std::vector<std::int32_t>* list : {&columns_, &missing_, &loaded_})
    list->reserve(static_cast<std::size_t>(most_neurons));
  records_.reserve(static_cast<std::size_t>(most_neurons));
  filling_.reserve(static_cast<std::size_t>(most_neurons));
}

void NeuronStream::begin(WeightId id, std::span<const std::uint32_t> num_active, std::int32_t num_rows) {
  const std::unique_lock<std::mutex> lock = pass_.lock();
  if (pass_.is_stopped()) {
    num_groups_ = 0;
    return;
  }
  give_up();
  current_ = layer_of_[index(id)];
  Layer& l = layer();
  is_active_.resize(l.slot_of.size());
  std::transform(num_active.begin(), num_active.begin() + std::ssize(is_active_), is_active_.begin(),
                 [](std::uint32_t num) { return static_cast<std::uint8_t>(num != 0); });
  num_groups_ = static_cast<std::int32_t>((is_active_.size() + kGroupColumns - 1) / kGroupColumns);
  done_ = requested_ = 0;
  missing_.clear();
  columns_.clear();
  group_starts_.assign(1, 0);
  count(l, num_active, num_rows);
  for (std::size_t neuron = 0; neuron < is_active_.size(); ++neuron) {
    if (is_active_[neuron] != 0) columns_.push_back(static_cast<std::int32_t>(neuron));
    if ((neuron + 1) % kGroupColumns == 0 || neuron + 1 == is_active_.size())
      group_starts_.push_back(static_cast<std::int32_t>(columns_.size()));
  }
  records_.assign(columns_.size(), nullptr);
  l.counters.active += std::ssize(columns_);
}

// Adds the tokens of a round to the average, as if each had the same neurons.
void NeuronStream::count(Layer& l, std::span<const std::uint32_t> num_active, std::int32_t num_rows) {
  const std::int32_t num_equal = std::min(num_rows, kFrequencyTokens - l.num_tokens);  // that count like all before
  const float kept = static_cast<float>(l.num_tokens) / static_cast<float>(l.num_tokens + num_equal) *
                     std::pow(1 - 1.0f / kFrequencyTokens, static_cast<float>(num_rows - num_equal));
  l.num_tokens += num_equal;
  const float added = (1 - kept) / static_cast<float>(num_rows);
  for (std::size_t neuron = 0; neuron < l.frequency.size(); ++neuron)
    l.frequency[neuron] = kept * l.frequency[neuron] + added * static_cast<float>(num_active[neuron]);
}

bool NeuronStream::next(std::int32_t& first_group, std::int32_t& last_group) {
  const std::unique_lock<std::mutex> lock = pass_.lock();
  if (pass_.is_stopped()) return false;
  keep_best();
  if (done_ == num_groups_) {
    start_fills();
    return false;
  }
  const std::int64_t first_missing = std::ssize(missing_);
  while (requested_ < num_groups_ && request_group()) ++requested_;
  add_missing(first_missing);
  start_reads();
  first_group = done_;
  // Where not all fit: while one half is multiplied with, the other is read.
  last_group = requested_ == num_groups_ ? requested_ : done_ + (requested_ - done_ + 1) / 2;
  done_ = last_group;
  return true;
}

// Gives the neurons of a group their slots; false: there are not enough. REQUIRES: where no other group has slots that
// are not kept, there are.
bool NeuronStream::request_group() {
  Layer& l = layer();
  const std::int32_t first = group_starts_[index(requested_)], last = group_starts_[index(requested_) + 1];
  const auto is_missing = [&](std::int32_t neuron) { return l.slot_of[index(neuron)] < 0; };
  const auto num_missing = std::count_if(columns_.begin() + first, columns_.begin() + last, is_missing);
  if (num_missing > std::ssize(free_slots_)) return false;
  left_of_group_[index(requested_)].store(static_cast<std::int32_t>(num_missing), std::memory_order_relaxed);
  for (std::int32_t i = first; i < last; ++i) {
    const std::int32_t neuron = columns_[index(i)];
    std::int32_t& place = l.slot_of[index(neuron)];
    if (place < 0) {
      place = free_slots_.back();
      free_slots_.pop_back();
      missing_.push_back(neuron);
      loaded_.push_back(neuron);
    }
    records_[index(i)] = slot(place);
  }
  l.counters.hits += last - first - num_missing;
  l.counters.missed_bytes += num_missing * l.record_bytes;
  return true;
}

// The missing neurons from `first` on.
void NeuronStream::add_missing(std::int64_t first) {
  Layer& l = layer();
  const std::size_t before = waiting_.size();
  add_runs(l, missing_, first, false);
  l.counters.requested_bytes += (std::ssize(missing_) - first) * l.record_bytes;
  for (std::size_t i = before; i < waiting_.size(); ++i)
    l.counters.sector_bytes +=
        round_up(waiting_[i].offset + waiting_[i].length, kDirectAlignment) - first_sector(waiting_[i].offset);
}

// Neurons in ascending order, from `first` on, as runs of neighbouring sectors: no sector is read for nothing, and none
// twice but where a record lies across the end of a full window.
void NeuronStream::add_runs(const Layer& l, const std::vector<std::int32_t>& neurons, std::int64_t first,
                            bool is_fill) {
  std::deque<Run>& runs = is_fill ? fills_ : waiting_;
  const std::size_t before = runs.size();
  for (std::int64_t i = first; i < std::ssize(neurons); ++i) {
    const std::int64_t begin = offset_of(l, neurons[static_cast<std::size_t>(i)]), end = begin + l.record_bytes;
    if (runs.size() > before) {
      Run& last = runs.back();
      const bool is_neighbour = first_sector(begin) <= round_up(last.offset + last.length, kDirectAlignment);
      const std::int64_t span = round_up(end, kDirectAlignment) - first_sector(last.offset);
      if (is_neighbour && span <= window_bytes_ - kDirectAlignment) {
        last.length = end - last.offset;
        ++last.num;
        continue;
      }
    }
    runs.push_back({i, 1, begin, l.record_bytes, is_fill});
  }
}

void NeuronStream::start_reads() {
  while (start_read(waiting_, current_, ReadPriority::demand)) continue;
}

// The first of those that wait. False: none does, or there is no window for it.
bool NeuronStream::start_read(std::deque<Run>& waiting, std::int32_t layer_index, ReadPriority priority) {
  if (waiting.empty() || free_windows_.empty() || pass_.is_stopped()) return false;
  const std::size_t w = free_windows_.back();
  free_windows_.pop_back();
  reading_[w] = waiting.front();
  waiting.pop_front();
  ++num_reading_;
  const ReadTag number = number_ | static_cast<ReadTag>(layer_index) << kLayerBits | w;
  reader_.submit({segment_tag(number, 0), layers_[index(layer_index)].part->file, reading_[w].offset,
                  reading_[w].length, window(w), priority});
  return true;
}

// Between two matrices, while the disk has nothing else to do: memory that was never used gets the neurons that are
// known to be active most often. Half of the windows stay free for those that are waited for.
void NeuronStream::start_fills() {
  const auto wants_more = [this] { return !fills_.empty() || (num_fills_ == 0 && choose_fills()); };
  while (pass_.is_running() && done_ == num_groups_ && num_fills_ < max_fills_ && wants_more() &&
         start_read(fills_, fill_layer_, ReadPriority::predicted))
    ++num_fills_;
}

// Those of the matrix that is used next. False: none has room, or nothing is known of it.
bool NeuronStream::choose_fills() {
  for (std::int32_t i = 1; i <= std::ssize(layers_); ++i) {
    fill_layer_ = (current_ + i) % static_cast<std::int32_t>(layers_.size());
    Layer& l = layers_[index(fill_layer_)];
    if (!std::exchange(l.can_fill, false) || l.kept.size() >= quota_) continue;
    filling_.clear();
    for (std::size_t neuron = 0; neuron < l.slot_of.size(); ++neuron)
      if (l.slot_of[neuron] < 0 && l.frequency[neuron] > 0) filling_.push_back(static_cast<std::int32_t>(neuron));
    if (const std::size_t room = quota_ - l.kept.size(); filling_.size() > room) {
      const auto end = filling_.begin() + static_cast<std::ptrdiff_t>(room);
      std::nth_element(filling_.begin(), end, filling_.end(), [&l](std::int32_t a, std::int32_t b) {
        const float x = l.frequency[index(a)], y = l.frequency[index(b)];
        return x != y ? x > y : a < b;
      });
      filling_.erase(end, filling_.end());
      std::sort(filling_.begin(), filling_.end());
    }
    add_runs(l, filling_, 0, true);
    if (!fills_.empty()) return true;
  }
  return false;
}

void NeuronStream::read_ended(ReadTag number, ReadOutcome outcome) {
  const auto w = static_cast<std::size_t>(number & ((ReadTag{1} << kLayerBits) - 1));
  const Run& run = reading_[w];
  --num_reading_;
  if (run.is_fill) --num_fills_;
  if (outcome == ReadOutcome::complete) {
    const std::uint8_t* bytes = window(w) + window_lead(run.offset);
    run.is_fill ? place_fills(run, bytes) : place_missing(run, bytes);
  }
  free_windows_.push_back(w);
  start_reads();
  start_fills();
}

// bytes: of the run.
void NeuronStream::place_missing(const Run& run, const std::uint8_t* bytes) {
  const Layer& l = layer();
  for (std::int64_t i = run.first; i < run.first + run.num; ++i) {
    const std::int32_t neuron = missing_[static_cast<std::size_t>(i)];
    std::memcpy(slot(l.slot_of[index(neuron)]), bytes + (offset_of(l, neuron) - run.offset),
                static_cast<std::size_t>(l.record_bytes));
    left_of_group_[index(neuron) / kGroupColumns].fetch_sub(1, std::memory_order_release);
  }
}

// As far as there is room still: a round may have asked for the same neurons meanwhile, or for others.
void NeuronStream::place_fills(const Run& run, const std::uint8_t* bytes) {
  Layer& l = layers_[index(fill_layer_)];
  for (std::int64_t i = run.first; i < run.first + run.num && l.kept.size() < quota_ && !free_slots_.empty(); ++i) {
    const std::int32_t neuron = filling_[static_cast<std::size_t>(i)];
    std::int32_t& place = l.slot_of[index(neuron)];
    if (place >= 0) continue;
    place = free_slots_.back();
    free_slots_.pop_back();
    std::memcpy(slot(place), bytes + (offset_of(l, neuron) - run.offset), static_cast<std::size_t>(l.record_bytes));
    l.kept.push_back(neuron);
    l.counters.filled_bytes += l.record_bytes;
  }
}

bool NeuronStream::wait(std::int32_t first_group, std::int32_t last_group) {
  const auto is_there = [&] {
    return std::all_of(left_of_group_.get() + first_group, left_of_group_.get() + last_group,
                       [](const std::atomic<std::int32_t>& left) { return left.load(std::memory_order_acquire) == 0; });
  };
  if (pass_.is_stopped()) return false;
  if (is_there()) return true;
  std::unique_lock<std::mutex> lock = pass_.lock();
  const Clock::time_point start = Clock::now();
  const bool has_come = pass_.wait(lock, is_there, [this] { return num_reading_ == 0; });
  StreamTimes& times = layer().times;
  times.waited_s += pass_.waited(layer().id, start);
  ++times.num_late;
  return has_come;
}

// Of the neurons that are in memory and not about to be used, those that were active most often stay, the last token's
// before others.
void NeuronStream::keep_best() {
  if (loaded_.empty()) return;
  Layer& l = layer();
  const auto is_needed = [&](std::int32_t neuron) {
    return neuron >= done_ * kGroupColumns && is_active_[index(neuron)] != 0;
  };
  const auto first_done = std::partition(loaded_.begin(), loaded_.end(), is_needed);
  l.kept.insert(l.kept.end(), first_done, loaded_.end());
  loaded_.erase(first_done, loaded_.end());
  if (l.kept.size() <= quota_) return;
  const auto first = std::partition(l.kept.begin(), l.kept.end(), is_needed);
  const auto end = l.kept.begin() + static_cast<std::ptrdiff_t>(quota_);
  const auto worth = [&](std::int32_t neuron) {
    return l.frequency[index(neuron)] + (is_active_[index(neuron)] != 0 ? kLastUse : 0.0f);
  };
  // More than the quota is never needed: what is kept was within it before.
  std::nth_element(first, end, l.kept.end(), [&](std::int32_t a, std::int32_t b) {
    const float x = worth(a), y = worth(b);
    return x != y ? x > y : a < b;
  });
  for (auto it = end; it != l.kept.end(); ++it) free_slots_.push_back(std::exchange(l.slot_of[index(*it)], -1));
  l.kept.erase(end, l.kept.end());
}

// What a pass that was stopped has left: nothing is being read any more.
void NeuronStream::give_up() {
  for (const std::int32_t neuron : loaded_) free_slots_.push_back(std::exchange(layer().slot_of[index(neuron)], -1));
  loaded_.clear();
  waiting_.clear();
}

WeightId NeuronStream::weight_of(ReadTag number) const {
  return layers_[static_cast<std::size_t>(number >> kLayerBits)].id;
}

std::vector<NeuronCounters> NeuronStream::counters() const {
  std::vector<NeuronCounters> counters;
  for (const Layer& l : layers_) counters.push_back(l.counters);
  return counters;
}

void NeuronStream::add_times(std::vector<StreamTimes>& times) const {
  for (const Layer& l : layers_) {
    times[index(l.id)].num_late += l.times.num_late;
    times[index(l.id)].waited_s += l.times.waited_s;
  }
}

}  // namespace edgert
