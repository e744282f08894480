// Where the weights are. The executor pins a weight, computes, releases; what is pinned is resident.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/memory.h"
#include "base/threads.h"
#include "io/file.h"
#include "weights/loading.h"
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
  // Begins to read every weight that is not streamed into one arena, in the order of the files, on threads
  // of its own: the caller goes on. Nothing can be added any more. direct: what is read does not come into the page
  // cache, but past it as these options say. Throws std::bad_alloc, or std::system_error without a thread.
  void start_loading(int num_threads, const std::optional<ReaderOptions>& direct = std::nullopt);
  // Waits for it, then sets up what is streamed; progress(done, total) in bytes, from this thread, now and then and at
  // the end. Throws ReadError, what File::read throws, what progress throws, and std::invalid_argument for contents
  // that are wrong; the store then holds no weight.
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
  bool has_outliers(WeightId id) const { return !weights_[static_cast<std::size_t>(id)].request.outliers.empty(); }
  bool is_by_neuron(WeightId id) const { return weights_[static_cast<std::size_t>(id)].request.neuron_bits != 0; }
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
    ArenaPlaces places;
  };

  std::int64_t place();
  void stop_loading();
  void open_stream();

  std::vector<File> files_;
  std::vector<Weight> weights_;
  std::unordered_map<std::string, WeightId> ids_;
  Memory arena_;
  bool is_budgeted_ = false;
  std::unique_ptr<Loading> loading_;  // from start_loading to finish_loading
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
