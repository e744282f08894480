// Where the weights are. The executor pins a weight, computes, releases; what is pinned is resident.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/memory.h"
#include "base/threads.h"
#include "io/file.h"
#include "weights/request.h"
#include "weights/stream.h"

namespace edgert {

class WeightStore {
 public:
  WeightStore();
  // Stops what still reads.
  ~WeightStore();
  WeightStore(const WeightStore&) = delete;
  WeightStore& operator=(const WeightStore&) = delete;

  std::int32_t add_file(const std::string& path);
  // Checks the request against the open file. Throws std::invalid_argument or std::out_of_range, naming the tensor.
  // REQUIRES: nothing is being read.
  WeightId add(const WeightRequest& request);
  // What of the weights shall not be resident, and how it is read. Throws std::invalid_argument.
  // REQUIRES: every weight has been added, and nothing has been read.
  void set_stream(const StreamPlan& plan, const ReaderOptions& options);
  // Begins to read every weight that is not streamed into one arena, in the order in which they were added, on threads
  // of its own: the caller goes on. Nothing can be added any more. is_budgeted: what was read does not stay in the page
  // cache. Throws std::bad_alloc, or std::system_error without a thread.
  void start_loading(int num_threads, bool is_budgeted = false);
  // Waits for it, then sets up what is streamed; progress(done, total) in bytes, from this thread, now and then and at
  // the end. Throws what File::read throws, what progress throws, and std::invalid_argument for outliers that are
  // wrong; the store then holds no weight.
  void finish_loading(const std::function<void(std::int64_t, std::int64_t)>& progress);
  // Both at once.
  void load(int num_threads, const std::function<void(std::int64_t, std::int64_t)>& progress) {
    start_loading(num_threads);
    finish_loading(progress);
  }

  // Returns -1 if no weight has that name.
  WeightId find(const std::string& name) const;
  const std::string& name(WeightId id) const { return weights_[static_cast<std::size_t>(id)].request.name; }
  std::int64_t resident_bytes() const { return static_cast<std::int64_t>(arena_.num_bytes()); }
  std::size_t num_weights() const { return weights_.size(); }

  // REQUIRES: finish_loading has returned, and the weight is not streamed.
  const WeightView& pin(WeightId id) const { return weights_[static_cast<std::size_t>(id)].view; }
  bool is_streamed(WeightId id) const { return weights_[static_cast<std::size_t>(id)].is_streamed; }
  // Null: every weight is resident.
  WeightStream* stream() const { return stream_.get(); }
  // Shape and format, without residency.
  const WeightView& describe(WeightId id) const { return weights_[static_cast<std::size_t>(id)].view; }

 private:
  struct Weight {
    WeightRequest request;
    WeightView view;
    bool is_streamed = false;
    std::array<std::int64_t, kMaxParts> arena_offsets{};
    std::int64_t outlier_starts_offset = 0, outliers_offset = 0;  // in the arena
  };
  struct ReadTask;

  bool is_placed(const Weight& weight, int part) const;
  void add_neuron_tasks(WeightId id, std::vector<ReadTask>& tasks) const;
  void read_neurons(const Weight& weight, std::int64_t first_group, std::int64_t num_groups,
                    std::vector<std::uint8_t>& scratch);

  // What the reading threads share.
  struct Reading;

  std::int64_t place();
  std::vector<ReadTask> split_into_tasks() const;
  void read_tasks(Reading& reading);
  void stop_reading();
  void read_rows(const Weight& weight, std::int64_t first_row, std::int64_t num_rows,
                 std::vector<std::uint8_t>& scratch);
  void read_outliers(const Weight& weight, std::vector<std::uint8_t>& scratch);
  void read(const PartAddress& address, std::int64_t begin, std::int64_t count, std::uint8_t* out) const;
  void open_stream();
  void run_task(const ReadTask& task, std::vector<std::uint8_t>& scratch);

  std::vector<File> files_;
  std::vector<Weight> weights_;
  std::unordered_map<std::string, WeightId> ids_;
  Memory arena_;
  bool is_budgeted_ = false;
  std::unique_ptr<Reading> reading_;  // from start_loading to finish_loading
  std::unique_ptr<StreamPlan> plan_;
  ReaderOptions reader_options_;
  std::unique_ptr<WeightStream> stream_;
};

// Strips of a weight, from `begin` up to at most `end`, for the length of a scope. Waits for what is streamed.
class StripPin {
 public:
  StripPin(const WeightStore& store, WeightId id, std::int32_t begin, std::int32_t end)
      : stream_(store.is_streamed(id) ? store.stream() : nullptr), begin_(begin) {
    if (stream_ == nullptr) {
      view_ = &store.pin(id);
      lease_.end = end;
    } else if (stream_->acquire(id, begin, end, lease_)) {
      view_ = &lease_.view;
    }
  }
  ~StripPin() {
    if (stream_ != nullptr && view_ != nullptr) stream_->release(lease_, begin_);
  }
  StripPin(const StripPin&) = delete;
  StripPin& operator=(const StripPin&) = delete;

  // False: the pass was stopped, and nothing may be read.
  explicit operator bool() const { return view_ != nullptr; }
  const WeightView& view() const { return *view_; }
  std::int32_t end() const { return lease_.end; }

 private:
  WeightStream* const stream_;
  const std::int32_t begin_;
  StripLease lease_;
  const WeightView* view_ = nullptr;
};

}  // namespace edgert
