// Matrices that lie neuron by neuron and do not fit the memory: reads the columns of the neurons that are active, and
// keeps those that are active most often.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/memory.h"
#include "io/pass.h"
#include "io/reader.h"
#include "weights/expert_stream.h"
#include "weights/request.h"

namespace edgert {

struct NeuronPlan {
  std::vector<WeightId> weights;  // in the order of their use
  std::int64_t bytes = 0;         // of memory for records, what they are read into included; 0: all are resident
  // Of each weight the share of tokens that activated each neuron, as counted on another text; empty: nothing is known.
  std::vector<std::vector<float>> frequency;
};

// Of one matrix, in the passes so far: neurons that a round multiplied with, and those of them that were in memory.
// Of the others the bytes, and those that were asked of the reader: records, and the whole sectors around them.
// Besides, records that filled memory which was free.
struct NeuronCounters {
  std::int64_t active = 0, hits = 0;
  std::int64_t missed_bytes = 0, requested_bytes = 0, sector_bytes = 0, filled_bytes = 0;
};

class NeuronStream {
 public:
  // number: where the numbers of its reads begin in the reader's tags. Throws std::invalid_argument where the plan does
  // not fit the weights, or its bytes are too few.
  NeuronStream(const std::vector<const WeightRequest*>& requests, const NeuronPlan& plan, Pass& pass, Reader& reader,
               ReadTag number);

  bool has(WeightId id) const { return layer_of_[static_cast<std::size_t>(id)] >= 0; }

  // The caller's thread, between runs: for each column of a matrix how many rows activate it; then range by range the
  // groups to multiply with: all at once where their neurons fit. False: none is left, or the pass was stopped.
  void begin(WeightId id, std::span<const std::uint32_t> num_active, std::int32_t num_rows);
  bool next(std::int32_t& first_group, std::int32_t& last_group);

  // Any thread, groups of the range: waits until their records are there; false: the pass was stopped.
  bool wait(std::int32_t first_group, std::int32_t last_group);
  // From `begin` on; the records of a group, after wait.
  ActiveNeurons active() const {
    const int bits = layers_[static_cast<std::size_t>(current_)].bits;
    return {group_starts_.data(), columns_.data(), records_.data(), bits};
  }

  // With the lock of the pass.
  void read_ended(ReadTag number, ReadOutcome outcome);
  bool is_settled() const { return num_reading_ == 0; }
  WeightId weight_of(ReadTag number) const;
  std::vector<NeuronCounters> counters() const;
  void add_times(std::vector<StreamTimes>& times) const;

 private:
  // One matrix. Of each neuron: the share of tokens that activated it, the last ones above all; its slot, or -1.
  struct Layer {
    WeightId id = -1;
    const PartAddress* part = nullptr;
    std::int32_t bits = 0;  // of a code
    std::int64_t record_bytes = 0;
    std::vector<float> frequency;
    std::int32_t num_tokens = 0;  // for which frequency stands
    bool can_fill = false;  // it is known which neurons to fill free memory with, and they have not been asked for
    std::vector<std::int32_t> slot_of;
    std::vector<std::int32_t> kept;  // neurons that stay in memory between their uses
    NeuronCounters counters;
    StreamTimes times;
  };
  // Neurons [first, first + num) of a list, whose records lie in neighbouring sectors.
  struct Run {
    std::int64_t first = 0, num = 0;
    std::int64_t offset = 0, length = 0;  // of the file
    bool is_fill = false;                 // the list is filling_, not missing_
  };

  Layer& layer() { return layers_[static_cast<std::size_t>(current_)]; }
  std::uint8_t* slot(std::int32_t index) const { return memory_.data() + index * slot_bytes_; }
  std::uint8_t* window(std::size_t index) const {
    return windows_.data() + static_cast<std::int64_t>(index) * window_bytes_;
  }
  static std::int64_t offset_of(const Layer& l, std::int32_t neuron) {
    return l.part->offset + neuron * l.record_bytes;
  }
  static void count(Layer& l, std::span<const std::uint32_t> num_active, std::int32_t num_rows);
  bool request_group();
  void add_missing(std::int64_t first);
  void add_runs(const Layer& l, const std::vector<std::int32_t>& neurons, std::int64_t first, bool is_fill);
  void start_reads();
  bool start_read(std::deque<Run>& waiting, std::int32_t layer_index, ReadPriority priority);
  void start_fills();
  bool choose_fills();
  void place_missing(const Run& run, const std::uint8_t* bytes);
  void place_fills(const Run& run, const std::uint8_t* bytes);
  void keep_best();
  void give_up();

  Pass& pass_;
  Reader& reader_;
  const ReadTag number_;
  std::vector<Layer> layers_;
  std::vector<std::int32_t> layer_of_;  // by WeightId; -1: another kind of weight
  std::int64_t slot_bytes_ = 0, window_bytes_ = 0;
  std::size_t quota_ = 0;  // neurons of a matrix that are kept
  Memory memory_, windows_;
  std::vector<std::int32_t> free_slots_;
  std::vector<std::size_t> free_windows_;
  // The matrix that is being multiplied with: groups up to done_ are, those up to requested_ have their slots.
  std::int32_t current_ = 0;
  std::int32_t num_groups_ = 0, done_ = 0, requested_ = 0;
  std::vector<std::uint8_t> is_active_;       // by neuron
  std::vector<std::int32_t> group_starts_;    // into columns_
  std::vector<std::int32_t> columns_;         // active neurons
  std::vector<const std::uint8_t*> records_;  // of each of them
  std::vector<std::int32_t> missing_;         // neurons that were not in memory, in the order of their requests
  std::vector<std::int32_t> loaded_;          // of these, those that keep_best has not seen
  std::unique_ptr<std::atomic<std::int32_t>[]> left_of_group_;  // records that have not arrived
  std::deque<Run> waiting_;                                     // for a window
  // The matrix whose memory is being filled, and what of it is not there yet.
  std::int32_t fill_layer_ = 0;
  std::vector<std::int32_t> filling_;
  std::deque<Run> fills_;
  std::size_t num_fills_ = 0, max_fills_ = 0;  // that are being read
  std::vector<Run> reading_;                   // by window
  std::int32_t num_reading_ = 0;
};

}  // namespace edgert
