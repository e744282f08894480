// Experts that do not all fit the memory: reads those that the cache asks for, keeps them until it evicts them.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/memory.h"
#include "io/pass.h"
#include "weights/expert_cache.h"
#include "weights/piece_state.h"

namespace edgert {

struct ExpertPlan {
  std::vector<std::vector<WeightId>> layers;  // of each layer: gate, up, down of expert 0, of expert 1, ...
  std::int32_t top_k = 1;
  std::int64_t bytes = 0;       // of memory for experts, raw bytes included; 0: all are resident
  std::int64_t lent_bytes = 0;  // of these, that others may take
  std::string policy = kDefaultPolicy, predictor = kDefaultPredictor;
  // Experts that are not there when the router asks are computed from the parts up to this width; 0: waited for.
  std::int32_t miss_bits = 0;
};

// Some strips of a weight, resident while the lease lasts.
struct StripLease {
  WeightView view;
  std::int32_t end = 0;     // strips up to here may be read
  std::int32_t piece = -1;  // -1: nothing is to be given back
};

// Of one weight, in the passes so far.
struct StreamTimes {
  // Pieces that a pass used: those that were there, and those that it waited for. Of experts: all waits; of rows: none.
  std::int64_t num_hits = 0, num_late = 0;
  double waited_s = 0;  // summed over threads
};

// How the experts of a routing are computed: those that are there before the others, or one after the other by index.
enum class ExpertOrder : std::uint8_t { resident_first, ascending };

class ExpertStream {
 public:
  // number: where the numbers of its pieces begin in the reader's tags. Throws std::invalid_argument where the plan
  // does not fit the weights, or its bytes are below the experts of one token.
  ExpertStream(const std::vector<const WeightRequest*>& requests, const std::vector<const WeightView*>& views,
               const ExpertPlan& plan, Pass& pass, Reader& reader, ReadTag number);

  // The caller's thread, between runs: the tokens of a step; then for each layer its router's choice (for several
  // tokens the union, with the largest weight of each), and the experts to compute, group by group.
  void begin_step(std::span<const std::int32_t> tokens);
  // gate_logits: what the next layer's router makes of this layer's input, [rows][experts], or nothing.
  void route(std::int32_t layer, std::span<const std::int32_t> experts, std::span<const float> weights,
             std::span<const float> gate_logits, ExpertOrder order);
  // Gives the experts of the former group back, and says which come next, in the order that was asked for. False: none
  // is left, or the pass was stopped.
  bool next_group(std::vector<std::int32_t>& experts);

  // Any thread, for an expert of the group: waits until it is there.
  bool acquire(WeightId id, std::int32_t begin, std::int32_t end, StripLease& lease);

  // With the lock of the pass.
  void read_ended(ReadTag piece, ReadOutcome outcome);
  bool is_settled() const { return num_reading_ == 0; }
  // Between passes, settled: the memory from now on, at most what the plan gave; experts beyond it are evicted.
  void resize(std::int64_t num_bytes);
  bool can_resize(std::int64_t num_bytes) const { return slots_within(num_bytes) != num_slots(); }
  const Piece& piece(ReadTag number) const { return pieces_[static_cast<std::size_t>(number)]; }
  std::int64_t num_slots() const { return cache_->capacity_bytes() / slot_bytes_; }
  std::vector<ExpertCounters> counters() const;
  void add_times(std::vector<StreamTimes>& times) const;

 private:
  struct State : PieceState {
    std::int32_t slot = -1, raw_slot = -1;
    bool is_waiting = false;  // for a raw slot
    bool is_wanted = false;   // by the router: a read that is cancelled begins again
    bool is_fill = false;     // nobody has asked for it
    // Of a piece that is read in two: what is left follows the leading parts at once, as nobody has asked for it yet;
    // it is being read, or that has ended and the cache does not know.
    bool reads_on = false, is_reading_rest = false;
    ReadPriority priority = ReadPriority::demand;
  };
  struct Ended {
    std::size_t piece;
    ReadOutcome outcome;
    bool is_rest;
  };
  struct Place {
    std::int32_t piece = -1, matrix = 0;
  };

  std::size_t index(ExpertRef expert) const {
    return static_cast<std::size_t>(cache_->shape().slot(expert.layer, expert.expert));
  }
  ExpertRef ref(std::size_t piece) const;
  std::int64_t slots_within(std::int64_t num_bytes) const;
  void tidy();
  void apply(const CacheDecision& decision, ReadPriority priority);
  void drain();
  bool can_begin(std::size_t piece) const;
  bool is_next_read(std::size_t piece) const;
  void begin_read(std::size_t piece);
  void start_waiting();
  void forget(std::size_t piece);
  void prefer(std::size_t piece);
  void fill_group(std::size_t most);
  void fill_group_in_order(std::size_t most);
  void take(std::size_t i);
  void admit();
  bool postpone_last();
  void give_up_left();
  void stop_waiting(std::size_t piece);
  void begin_rest(std::size_t piece);
  void start_rests();
  void start_fills();

  const std::vector<const WeightView*> views_;
  Pass& pass_;
  Reader& reader_;
  const ReadTag number_;
  std::vector<Piece> pieces_;  // by layer, then expert
  std::vector<std::unique_ptr<State>> states_;
  std::vector<Place> place_of_;  // by WeightId
  std::int64_t slot_bytes_ = 0, raw_slot_bytes_ = 0;
  std::int64_t least_slots_ = 1, most_slots_ = 1;
  std::size_t num_raw_slots_ = 0;
  Memory memory_, raw_;
  std::vector<std::int32_t> free_slots_, free_raw_slots_;
  std::deque<std::size_t> waiting_;  // pieces that want a raw slot
  std::unique_ptr<ExpertCache> cache_;
  // Pieces with leading parts only, the last used first, of which nothing is being read; how many are read to their
  // end, and may be, at a time.
  std::deque<std::size_t> coarse_;
  std::size_t num_rests_ = 0, max_rests_ = 0;
  std::size_t num_fills_ = 0, max_fills_ = 0;  // experts on their way into free memory
  std::vector<std::int64_t> num_coarse_;       // by layer: experts that were computed so
  // The routing that is being worked through.
  std::int32_t layer_ = 0;
  ExpertOrder order_ = ExpertOrder::resident_first;
  std::vector<std::int32_t> experts_, group_;
  std::vector<char> is_done_;
  std::int32_t num_deferred_ = 0;
  std::int32_t num_reading_ = 0;
  std::vector<Ended> ended_;        // told to the cache by the caller's thread
  std::vector<StreamTimes> times_;  // by WeightId
};

}  // namespace edgert
