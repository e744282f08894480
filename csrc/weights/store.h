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
#include "formats/format.h"
#include "io/file.h"

namespace edgert {

using WeightId = std::int32_t;

struct PartAddress {
  std::int32_t file = 0;  // index from add_file: a model may be split over files
  std::int64_t offset = 0, length = 0;
};

// A weight as a file holds it. `cols` is 0 for a vector of `rows` values.
struct WeightRequest {
  std::string name;
  Format format = Format::f32;
  std::int64_t rows = 0, cols = 0;
  std::vector<PartAddress> parts;  // one for float formats and ggml blocks, else one for each part of the format
  bool is_packed = false;          // the file holds the strips of the format's parts, not rows
  // Heads of a matrix whose rows a GGUF file holds pair by pair; 0: the rows lie as they are meant.
  // Row h * head_dim + t * (head_dim / 2) + j is read from row h * head_dim + 2 * j + t.
  std::int32_t unpermute_heads = 0;
  // The bf16 scales of part 0 are multiplied by 2 to this power: a uniform grid seen at fewer bits has wider steps.
  std::int32_t scale_exponent = 0;
  // Starts, columns and values of the outliers beside the parts (docs/formats.md, section 2); empty: there are none.
  std::vector<PartAddress> outliers;
};

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
  // Begins to read every weight into one arena, in the order in which they were added, on threads of its own: the
  // caller goes on. Nothing can be added any more. Throws std::bad_alloc, or std::system_error without a thread.
  void start_loading(int num_threads);
  // Waits for it; progress(done, total) in bytes, from this thread, now and then and at the end. Throws what File::read
  // throws, what progress throws, and std::invalid_argument for outliers that are wrong; the store then holds no
  // weight.
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

  // REQUIRES: finish_loading has returned. Every weight is resident for good, so a pin is free; with a budget it will
  // wait.
  const WeightView& pin(WeightId id) const { return weights_[static_cast<std::size_t>(id)].view; }
  void release(WeightId) const {}
  // Shape and format, without residency.
  const WeightView& describe(WeightId id) const { return weights_[static_cast<std::size_t>(id)].view; }

 private:
  struct Weight {
    WeightRequest request;
    WeightView view;
    std::array<std::int64_t, kMaxParts> arena_offsets{};
    std::int64_t outlier_starts_offset = 0, outliers_offset = 0;  // in the arena
  };
  struct ReadTask;

  // What the reading threads share.
  struct Reading;

  std::int64_t place();
  std::vector<ReadTask> split_into_tasks() const;
  void read_tasks(Reading& reading);
  void stop_reading();
  void read_rows(const Weight& weight, std::int64_t first_row, std::int64_t num_rows,
                 std::vector<std::uint8_t>& scratch);
  void read_outliers(const Weight& weight, std::vector<std::uint8_t>& scratch);
  void run_task(const ReadTask& task, std::vector<std::uint8_t>& scratch);

  std::vector<File> files_;
  std::vector<Weight> weights_;
  std::unordered_map<std::string, WeightId> ids_;
  Memory arena_;
  std::unique_ptr<Reading> reading_;  // from start_loading to finish_loading
};

// Pins for the length of a scope.
class WeightPin {
 public:
  WeightPin(const WeightStore& store, WeightId id) : store_(store), id_(id), view_(store.pin(id)) {}
  ~WeightPin() { store_.release(id_); }
  WeightPin(const WeightPin&) = delete;
  WeightPin& operator=(const WeightPin&) = delete;
  const WeightView& view() const { return view_; }

 private:
  const WeightStore& store_;
  const WeightId id_;
  const WeightView& view_;
};

}  // namespace edgert
