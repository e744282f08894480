// Weights that do not fit the memory: read piece by piece in the order of their use, pass after pass.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/memory.h"
#include "io/pass.h"
#include "io/reader.h"
#include "weights/expert_stream.h"
#include "weights/neuron_stream.h"
#include "weights/piece_state.h"
#include "weights/ring.h"

namespace edgert {

// What is streamed, and through how much memory. Decided by offload/placement.py.
struct StreamPlan {
  struct Cut {
    WeightId id = -1;
    std::vector<std::int32_t> first_strips;  // of its pieces, ascending from 0; multiples of row_unit / 16
  };
  std::vector<Cut> cuts;  // matrices in pieces, in the order of their use
  // (index into cuts, index of the piece), the first is kept first; all that fits beside the ring is.
  std::vector<std::pair<std::int32_t, std::int32_t>> lock_order;
  std::vector<WeightId> lookups;  // matrices of which single rows are read when they are asked for
  std::int64_t pool_bytes = 0;    // for pieces, raw bytes included, and for what others take of it (begin_pass)
  std::int64_t lent_bytes = 0;    // of these, that others may take; without pieces, of the experts' memory
  std::int64_t ring_bytes = 0;    // of these, for pieces that are not kept
  ExpertPlan experts;
  NeuronPlan neurons;
};

struct StreamCounters {
  ReadCounters reads;
  std::int64_t wasted_bytes = 0;        // read and given up unused
  std::int64_t locked_bytes = 0;        // memory of pieces that stay
  std::int64_t num_expert_slots = 0;    // experts that fit
  std::vector<StreamTimes> weights;     // by WeightId
  std::vector<ExpertCounters> experts;  // by layer; empty without an expert cache
  std::vector<NeuronCounters> neurons;  // by matrix that lies neuron by neuron; empty where these are resident
};

struct StreamTrace {
  struct Read {
    ReadEvent event;
    WeightId weight = -1;                          // of an expert the first of its matrices; -1: keys and values
    std::int32_t first_strip = 0, num_strips = 0;  // of a piece; 0: a row of a lookup, a whole expert, or neurons
  };
  std::vector<WaitEvent> waits;
  std::vector<Read> reads;
};

// One pass at a time: begin_pass, acquire and release on any threads, end_pass.
class WeightStream {
 public:
  // A step of a pass multiplies with the weight; those of one segment are needed at once by each round of a pass.
  struct Use {
    WeightId id = -1;
    std::int32_t segment = 0;
    bool is_for_logits = false;  // only in rounds that ask for logits
  };

  // requests and views: by WeightId; they and the files outlive the stream. Throws std::invalid_argument where the plan
  // does not fit the weights, std::bad_alloc, std::system_error.
  WeightStream(std::span<const File> files, std::span<const WeightRequest* const> requests,
               std::span<const WeightView* const> views, const StreamPlan& plan, const ReaderOptions& options);
  ~WeightStream();

  // The order of a pass, and how many lookups may run at a time: called once, before the first pass.
  void set_uses(const std::vector<Use>& uses, std::size_t num_lookups);
  // Whether several rounds can share what a pass reads: then the pieces of a segment fit the ring together. Those that
  // only logits need are left out: a pass of several rounds asks for logits in one of them.
  bool can_share_rounds() const { return shared_limit_ >= 0; }

  // lent_bytes: of the pool, or of the experts' memory, that others use from now on; it is taken in steps, as weights
  // move then. should_stop: asked now and then while a thread of the caller's waits. The rounds of a pass run segment
  // by segment.
  void begin_pass(std::int32_t num_rounds, std::int32_t num_logits_rounds, std::int64_t lent_bytes,
                  std::function<bool()> should_stop);
  // Throws ReadError if a read failed, std::invalid_argument if what was read is wrong.
  // Returns false if the pass was stopped.
  bool end_pass();
  // From any thread: ends the reads of the pass that runs, and its waits.
  void stop();
  bool is_stopped() const { return pass_.is_stopped(); }
  // Asks should_stop, if the caller's thread calls and it has not asked for a while.
  void poll() { pass_.poll(); }
  // Null: there is no expert cache.
  ExpertStream* experts() { return experts_.get(); }
  // Null: no matrix is read neuron by neuron.
  NeuronStream* neurons() { return neurons_.get(); }

  // Waits until strips from `begin` on are there; false: the pass was stopped or a read failed.
  bool acquire(WeightId id, std::int32_t begin, std::int32_t end, StripLease& lease);
  void release(const StripLease& lease, std::int32_t begin);
  // Reads the strip that holds a row of a lookup; `view` lies in memory that lasts until the next call with this slot,
  // one of num_lookups.
  bool look_up(WeightId id, std::int64_t row, std::size_t slot, WeightView& view);

  StreamCounters counters() const;
  // Between passes: from now on reads, and waits of the thread that begins the passes, are kept.
  void start_trace();
  StreamTrace stop_trace();

 private:
  struct State : PieceState {
    bool is_kept = false, is_unwanted = false;
    std::int64_t place = -1, raw_place = -1;  // in the pool and in the raw memory
    bool was_late = false;                    // in this pass
    std::atomic<bool> was_used{false};
    std::atomic<std::int32_t> strips_left{0};  // that the pass still uses
  };
  struct Streamed {
    std::int32_t first_piece = 0, num_pieces = 0;
    bool is_for_logits = false;
  };
  struct Lookup {
    Memory memory;
    WeightId id = -1;
    std::int32_t segments_left = 0;
    bool has_failed = false;
  };

  void cut(const StreamPlan& plan);
  void order_locks(const StreamPlan& plan);
  std::int32_t piece_of(const Streamed& weight, std::int32_t strip) const;
  std::int64_t find_shared_limit() const;
  std::int64_t pool_end() const { return pieces_.empty() ? pool_bytes_ : pool_bytes_ - lent_bytes_; }
  std::int64_t kept_limit(std::int64_t end) const;
  void lend(std::int64_t num_bytes, std::unique_lock<std::mutex>& lock);
  void read_ended(ReadTag tag, ReadOutcome outcome, const std::string& error);
  bool prepare(std::int32_t piece, std::int32_t begin, std::int32_t end);
  void advance();
  bool request(std::int32_t piece);
  void drop(std::int32_t piece);
  void settle(std::unique_lock<std::mutex>& lock);
  void set_limit(std::int64_t limit, std::int64_t end, std::unique_lock<std::mutex>& lock);
  std::int32_t uses_of_pass(std::int32_t piece) const;
  bool stays_between_passes(std::int32_t piece) const;
  bool is_settled() const {
    return num_reading_ == 0 && (experts_ == nullptr || experts_->is_settled()) &&
           (neurons_ == nullptr || neurons_->is_settled());
  }
  State& state(std::int32_t piece) { return *states_[static_cast<std::size_t>(piece)]; }
  const Piece& at(std::int32_t piece) const { return pieces_[static_cast<std::size_t>(piece)]; }

  const std::span<const File> files_;
  std::vector<const WeightRequest*> requests_;
  std::vector<const WeightView*> views_;
  std::vector<Piece> pieces_;  // in the order of a pass
  std::vector<std::unique_ptr<State>> states_;
  std::vector<std::int64_t> lock_places_;  // of each piece if it is kept; its end is a limit
  std::vector<Streamed> of_;               // by WeightId
  std::vector<std::int32_t> segment_of_;   // of each piece
  std::int64_t largest_ = 0, ring_bytes_ = 0;
  std::int64_t all_kept_bytes_ = -1;  // of all pieces, if each may be kept
  // Of the pool, and for experts: bytes in all, those of either that may be lent, a step of them, those that are.
  std::int64_t pool_bytes_ = 0, expert_bytes_ = 0, max_lent_bytes_ = 0, lent_step_ = 1, lent_bytes_ = 0;
  // Of the pool: bytes of kept pieces in a pass of several rounds, -1 where there can be none; the same now; where the
  // ring ends.
  std::int64_t shared_limit_ = -1, limit_ = 0, end_ = 0;
  Memory pool_, raw_;
  Ring ring_, raw_ring_;
  std::vector<Lookup> lookups_;

  Pass pass_;                 // its lock guards all below
  std::int32_t cursor_ = 0;   // the next piece to ask for
  bool is_next_lap_ = false;  // the cursor has gone around: it reads for the pass to come
  std::int32_t num_reading_ = 0;
  std::int32_t num_rounds_ = 0, num_logits_rounds_ = 0;
  std::int64_t wasted_bytes_ = 0;
  std::vector<StreamTimes> times_;
  std::unique_ptr<ExpertStream> experts_;
  std::unique_ptr<NeuronStream> neurons_;
  std::unique_ptr<Reader> reader_;  // last: its thread ends before what it writes to
};

}  // namespace edgert
