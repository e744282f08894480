#include "weights/store.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "base/float16.h"
#include "formats/pack.h"
#include "weights/piece.h"

namespace edgert {
namespace {

constexpr std::int64_t kMaxDimension = std::int64_t{1} << 31;
constexpr std::int64_t kMaxElements = std::int64_t{1} << 48;  // far above any file; products of bytes cannot overflow
constexpr std::int64_t kTaskBytes = std::int64_t{4} << 20;
constexpr std::int64_t kPartAlignment = 64;
constexpr std::int32_t kMaxScaleExponent = 5;                      // a p7 at 2 bits
constexpr std::int32_t kRows = -1, kOutliers = -2, kNeurons = -3;  // in place of a part
constexpr std::chrono::milliseconds kProgressInterval{50};

template <class Number>
Number number_at(const std::uint8_t* p, std::int64_t index) {
  Number number;
  std::memcpy(&number, p + index * static_cast<std::int64_t>(sizeof(Number)), sizeof(Number));
  return number;
}

}  // namespace

// A range of one weight that a thread reads alone: bytes of a part, rows, all its outliers, or groups of neurons.
struct WeightStore::ReadTask {
  WeightId weight;
  std::int32_t part;  // or kRows, kOutliers, kNeurons
  std::int64_t begin, count;
  std::int64_t num_bytes;
};

struct WeightStore::Reading {
  std::vector<ReadTask> tasks;
  std::atomic<std::size_t> next{0};
  std::atomic<std::int64_t> done_bytes{0};
  std::mutex mutex;
  std::condition_variable changed;
  int num_running = 0;       // guarded by mutex
  std::exception_ptr error;  // guarded by mutex
  std::vector<std::thread> threads;
};

WeightStore::WeightStore() = default;
WeightStore::~WeightStore() { stop_reading(); }

std::int32_t WeightStore::add_file(const std::string& path) {
  files_.emplace_back(path);
  return static_cast<std::int32_t>(files_.size()) - 1;
}

WeightId WeightStore::add(const WeightRequest& request) {
  const auto fail = [&](const std::string& what) { throw std::invalid_argument(request.name + ": " + what); };
  if (reading_ != nullptr) fail("added while weights are read, expected before");
  if (ids_.count(request.name) != 0) fail("found twice, expected once");
  if (request.rows < 1 || request.rows >= kMaxDimension || request.cols < 0 || request.cols >= kMaxDimension)
    fail("found shape " + std::to_string(request.rows) + " x " + std::to_string(request.cols) +
         ", expected 1 to 2^31 - 1");
  if (request.cols > 0 && request.rows > kMaxElements / request.cols)
    fail("found " + std::to_string(request.rows) + " x " + std::to_string(request.cols) +
         " elements, expected at most 2^48");
  const FormatSpec& s = spec(request.format);
  const bool is_vector = request.cols == 0;
  if (is_vector && !s.is_float) fail(std::string("found a vector in ") + s.name + ", expected f32, f16 or bf16");
  const bool has_parts = !is_vector && request.is_packed && !s.is_float;
  if (!has_parts && !s.is_float && (s.block_columns == 0 || request.cols % s.block_columns != 0))
    fail(std::string("found ") + std::to_string(request.cols) + " columns in " + s.name + ", expected a multiple of " +
         std::to_string(s.block_columns));
  const int bits = neuron_bits(request.format);
  if (request.neuron_bits != 0 &&
      (!has_parts || bits == 0 || request.neuron_bits < bits || request.neuron_bits > (bits == 8 ? 8 : 7)))
    fail("found neurons of " + std::to_string(request.neuron_bits) + " bits in " + s.name +
         ", expected them in p2 to p8 or c2 to c4, and at least as many bits as it has");
  const auto num_scales = static_cast<std::size_t>(num_scale_parts(request.format));
  const std::size_t num_parts = request.neuron_bits != 0 ? num_scales + 1
                                : has_parts              ? static_cast<std::size_t>(s.num_parts)
                                                         : 1;
  if (request.parts.size() != num_parts)
    fail("found " + std::to_string(request.parts.size()) + " parts, expected " + std::to_string(num_parts));
  if (request.unpermute_heads < 0 ||
      (request.unpermute_heads > 0 && (has_parts || request.rows % (2 * std::int64_t{request.unpermute_heads}) != 0)))
    fail("found " + std::to_string(request.unpermute_heads) + " heads in " + std::to_string(request.rows) + " rows");
  const bool has_grid = has_parts && std::string_view(s.part_names[0]) == "scale" && s.block_columns == 0;
  if (request.scale_exponent < 0 || request.scale_exponent > kMaxScaleExponent ||
      (request.scale_exponent > 0 && !has_grid))
    fail("found the scale exponent " + std::to_string(request.scale_exponent) + " in " + s.name +
         ", expected 0, or in a format of our own at most " + std::to_string(kMaxScaleExponent));
  const auto check_address = [&](const PartAddress& address) {
    if (address.file < 0 || static_cast<std::size_t>(address.file) >= files_.size())
      fail("found an unknown file index");
    files_[static_cast<std::size_t>(address.file)].check_range(address.offset, address.length);
  };
  for (std::size_t p = 0; p < num_parts; ++p) {
    const PartAddress& address = request.parts[p];
    check_address(address);
    const bool is_neurons = request.neuron_bits != 0 && p == num_scales;
    const std::int64_t expected = is_neurons ? request.cols * neuron_bytes(request.neuron_bits, request.rows)
                                  : has_parts
                                      ? part_bytes(request.format, static_cast<int>(p), request.rows, request.cols)
                                      : request.rows * file_row_bytes(request);
    if (address.length != expected)
      fail("found " + std::to_string(address.length) + " bytes, expected " + std::to_string(expected));
  }
  if (!request.outliers.empty()) {
    if (!has_parts) fail(std::string("found outliers in ") + s.name + " row by row, expected them in a packed format");
    if (request.outliers.size() != 3)
      fail("found " + std::to_string(request.outliers.size()) + " parts of outliers, expected 3");
    if (request.cols > kMaxOutlierColumns)
      fail("found outliers in " + std::to_string(request.cols) + " columns, expected at most " +
           std::to_string(kMaxOutlierColumns));
    for (const PartAddress& address : request.outliers) check_address(address);
    const std::int64_t starts = request.outliers[0].length, columns = request.outliers[1].length,
                       values = request.outliers[2].length;
    if (starts != 4 * (request.rows + 1))
      fail("found " + std::to_string(starts) + " bytes of outlier starts, expected " +
           std::to_string(4 * (request.rows + 1)));
    if (columns % 2 != 0 || columns != values || columns / 2 > request.rows * request.cols ||
        columns / 2 > std::int64_t{0xFFFFFFFF})
      fail("found " + std::to_string(columns) + " and " + std::to_string(values) +
           " bytes of outlier columns and values, expected two for each outlier");
  }
  Weight weight;
  weight.request = request;
  weight.view.format = is_vector ? Format::f32 : request.format;
  weight.view.rows = static_cast<std::int32_t>(request.rows);
  weight.view.cols = static_cast<std::int32_t>(request.cols);
  weight.view.strips = static_cast<std::int32_t>((request.rows + kStripRows - 1) / kStripRows);
  weight.view.groups = static_cast<std::int32_t>((request.cols + kGroupColumns - 1) / kGroupColumns);
  weight.view.row_bytes = s.is_float ? (is_vector ? 0 : file_row_bytes(request)) : 0;
  weights_.push_back(std::move(weight));
  const auto id = static_cast<WeightId>(weights_.size()) - 1;
  ids_.emplace(request.name, id);
  return id;
}

WeightId WeightStore::find(const std::string& name) const {
  const auto it = ids_.find(name);
  return it == ids_.end() ? -1 : it->second;
}

// Whether a part is resident. Of what is streamed: what a tensor has once; and of neurons all but their codes.
bool WeightStore::is_placed(const Weight& weight, int part) const {
  const WeightRequest& r = weight.request;
  if (!weight.is_streamed) return true;
  return r.neuron_bits != 0 ? part < num_scale_parts(r.format) : strip_part_bytes(r, part) == 0;
}

// Gives every part its place in the arena; returns the arena's bytes.
std::int64_t WeightStore::place() {
  std::int64_t end = kPartAlignment;  // 0: not there
  for (Weight& weight : weights_) {
    const WeightRequest& r = weight.request;
    const bool is_vector = r.cols == 0;
    const int num_parts = is_vector ? 1 : spec(r.format).num_parts;
    for (int p = 0; p < num_parts; ++p) {
      // A vector is widened to float32 and padded to whole strips, so that kernels may read 16 values at a time.
      const std::int64_t num_bytes =
          is_vector ? round_up(r.rows, kStripRows) * 4 : part_bytes(r.format, p, r.rows, r.cols);
      if (!is_placed(weight, p)) continue;
      weight.arena_offsets[static_cast<std::size_t>(p)] = end;
      end += round_up(num_bytes, kPartAlignment);
    }
    if (r.outliers.empty()) continue;
    weight.outlier_starts_offset = end;
    end += round_up(4 * (std::int64_t{weight.view.strips} + 1), kPartAlignment);
    weight.outliers_offset = end;
    end += round_up(r.outliers[1].length / 2 * static_cast<std::int64_t>(sizeof(Outlier)), kPartAlignment);
  }
  return end + kPartAlignment;
}

std::vector<WeightStore::ReadTask> WeightStore::split_into_tasks() const {
  std::vector<ReadTask> tasks;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    const WeightRequest& r = weights_[i].request;
    const auto id = static_cast<WeightId>(i);
    if (!r.outliers.empty()) {
      std::int64_t num_bytes = 0;
      for (const PartAddress& address : r.outliers) num_bytes += address.length;
      tasks.push_back({id, kOutliers, 0, 1, num_bytes});
    }
    if (r.is_direct() || r.neuron_bits != 0) {
      if (r.neuron_bits != 0 && !weights_[i].is_streamed) add_neuron_tasks(id, tasks);
      const std::size_t num_parts = r.parts.size() - (r.neuron_bits != 0 ? 1 : 0);
      for (std::size_t p = 0; p < num_parts; ++p) {
        if (!is_placed(weights_[i], static_cast<int>(p))) continue;
        for (std::int64_t begin = 0; begin < r.parts[p].length; begin += kTaskBytes) {
          const std::int64_t count = std::min(kTaskBytes, r.parts[p].length - begin);
          tasks.push_back({id, static_cast<std::int32_t>(p), begin, count, count});
        }
      }
      continue;
    }
    if (weights_[i].is_streamed) continue;
    const std::int64_t row_bytes = file_row_bytes(r), unit = row_unit(r);
    const std::int64_t rows =
        r.is_vector() ? r.rows : std::max<std::int64_t>(1, kTaskBytes / (row_bytes * unit)) * unit;
    for (std::int64_t begin = 0; begin < r.rows; begin += rows) {
      const std::int64_t count = std::min(rows, r.rows - begin);
      tasks.push_back({id, kRows, begin, count, count * row_bytes});
    }
  }
  return tasks;
}

// Whole groups, so that no two threads write to the same bytes.
void WeightStore::add_neuron_tasks(WeightId id, std::vector<ReadTask>& tasks) const {
  const WeightRequest& r = weights_[static_cast<std::size_t>(id)].request;
  const std::int64_t group_bytes = kGroupColumns * neuron_bytes(r.neuron_bits, r.rows);
  const std::int64_t groups = (r.cols + kGroupColumns - 1) / kGroupColumns;
  const std::int64_t most = std::max<std::int64_t>(1, kTaskBytes / group_bytes);
  for (std::int64_t begin = 0; begin < groups; begin += most) {
    const std::int64_t count = std::min(most, groups - begin);
    tasks.push_back({id, kNeurons, begin, count, count * group_bytes});
  }
}

void WeightStore::read_neurons(const Weight& weight, std::int64_t first_group, std::int64_t num_groups,
                               std::vector<std::uint8_t>& scratch) {
  const WeightRequest& r = weight.request;
  const std::int64_t record_bytes = neuron_bytes(r.neuron_bits, r.rows), first = first_group * kGroupColumns;
  const std::int64_t count = std::min(r.cols - first, num_groups * kGroupColumns);
  scratch.resize(static_cast<std::size_t>(count * record_bytes));
  read(r.parts.back(), first * record_bytes, count * record_bytes, scratch.data());
  std::uint8_t* out[kMaxParts];
  for (int p = 0; p < kMaxParts; ++p) out[p] = arena_.data() + weight.arena_offsets[static_cast<std::size_t>(p)];
  for (std::int64_t column = 0; column < count; column += kGroupColumns)
    pack_neurons(r.format, r.neuron_bits, scratch.data() + column * record_bytes, record_bytes,
                 static_cast<int>(std::min<std::int64_t>(kGroupColumns, count - column)),
                 first_group + column / kGroupColumns, r.rows, r.cols, out);
}

void WeightStore::read_rows(const Weight& weight, std::int64_t first_row, std::int64_t num_rows,
                            std::vector<std::uint8_t>& scratch) {
  const WeightRequest& r = weight.request;
  const std::int64_t row_bytes = file_row_bytes(r);
  scratch.resize(static_cast<std::size_t>(num_rows * row_bytes));
  read(r.parts[0], first_row * row_bytes, num_rows * row_bytes, scratch.data());
  std::uint8_t* out[kMaxParts];
  for (int p = 0; p < kMaxParts; ++p) out[p] = arena_.data() + weight.arena_offsets[static_cast<std::size_t>(p)];
  place_rows(r, scratch.data(), first_row, num_rows, out);
}

void WeightStore::read(const PartAddress& address, std::int64_t begin, std::int64_t count, std::uint8_t* out) const {
  const File& file = files_[static_cast<std::size_t>(address.file)];
  file.read(address.offset + begin, count, out);
  if (is_budgeted_) file.drop_cached(address.offset + begin, count);
}

// Kernels take an input's column without a check: every number is looked at here. In memory the rows of a strip take
// turns.
void WeightStore::read_outliers(const Weight& weight, std::vector<std::uint8_t>& scratch) {
  const WeightRequest& r = weight.request;
  const auto fail = [&](std::int64_t row, const std::string& what) {
    throw std::invalid_argument(r.name + ": outliers of row " + std::to_string(row) + ": " + what);
  };
  const std::int64_t starts_bytes = r.outliers[0].length, count = r.outliers[1].length / 2;
  scratch.resize(static_cast<std::size_t>(starts_bytes + 4 * count));
  const std::uint8_t *columns = scratch.data() + starts_bytes, *values = columns + 2 * count;
  std::int64_t end = 0;
  for (const PartAddress& address : r.outliers) {
    read(address, 0, address.length, scratch.data() + end);
    end += address.length;
  }
  const auto start_of = [&](std::int64_t row) { return number_at<std::uint32_t>(scratch.data(), row); };
  if (start_of(0) != 0) fail(0, "found the start " + std::to_string(start_of(0)) + ", expected 0");
  if (start_of(r.rows) != count)
    fail(r.rows - 1, "found the end " + std::to_string(start_of(r.rows)) + ", expected " + std::to_string(count));
  for (std::int64_t row = 0; row < r.rows; ++row) {
    const std::int64_t first = start_of(row), last = start_of(row + 1);
    if (last < first || last > count)
      fail(row, "found the start " + std::to_string(first) + " and the end " + std::to_string(last) +
                    ", expected ascending ones up to " + std::to_string(count));
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t column = number_at<std::uint16_t>(columns, i);
      if (column >= r.cols)
        fail(row, "found column " + std::to_string(column) + ", expected below " + std::to_string(r.cols));
      if (i > first && column <= number_at<std::uint16_t>(columns, i - 1))
        fail(row, "found column " + std::to_string(column) + ", expected ascending ones");
      if ((number_at<std::uint16_t>(values, i) & 0x7C00) == 0x7C00)
        fail(row, "found a value that is infinite or no number in column " + std::to_string(column) +
                      ", expected a finite one");
    }
  }
  auto* strip_starts = reinterpret_cast<std::uint32_t*>(arena_.data() + weight.outlier_starts_offset);
  auto* outliers = reinterpret_cast<Outlier*>(arena_.data() + weight.outliers_offset);
  std::uint32_t num_done = 0;
  for (std::int64_t first_row = 0; first_row < r.rows; first_row += kStripRows) {
    const std::int64_t last_row = std::min(first_row + kStripRows, r.rows);
    *strip_starts++ = num_done;
    for (std::int64_t turn = 0; num_done < start_of(last_row); ++turn)
      for (std::int64_t row = first_row; row < last_row; ++row) {
        const std::int64_t i = start_of(row) + turn;
        if (i < start_of(row + 1))
          outliers[num_done++] = {float_from_f16(number_at<std::uint16_t>(values, i)),
                                  number_at<std::uint16_t>(columns, i), static_cast<std::uint16_t>(row - first_row)};
      }
  }
  *strip_starts = num_done;
}

void WeightStore::run_task(const ReadTask& task, std::vector<std::uint8_t>& scratch) {
  const Weight& weight = weights_[static_cast<std::size_t>(task.weight)];
  if (task.part == kRows) return read_rows(weight, task.begin, task.count, scratch);
  if (task.part == kOutliers) return read_outliers(weight, scratch);
  if (task.part == kNeurons) return read_neurons(weight, task.begin, task.count, scratch);
  const PartAddress& address = weight.request.parts[static_cast<std::size_t>(task.part)];
  std::uint8_t* out = arena_.data() + weight.arena_offsets[static_cast<std::size_t>(task.part)];
  read(address, task.begin, task.count, out + task.begin);
  finish_part(weight.request, task.part, out + task.begin, task.count);
}

void WeightStore::read_tasks(Reading& reading) {
  std::vector<std::uint8_t> scratch;
  try {
    for (std::size_t i = reading.next.fetch_add(1); i < reading.tasks.size(); i = reading.next.fetch_add(1)) {
      run_task(reading.tasks[i], scratch);
      reading.done_bytes.fetch_add(reading.tasks[i].num_bytes);
    }
  } catch (...) {
    reading.next.store(reading.tasks.size());
    const std::lock_guard<std::mutex> lock(reading.mutex);
    reading.error = std::current_exception();
  }
  const std::lock_guard<std::mutex> lock(reading.mutex);
  --reading.num_running;
  reading.changed.notify_all();
}

void WeightStore::set_stream(const StreamPlan& plan, const ReaderOptions& options) {
  const auto mark = [&](WeightId id) {
    if (id < 0 || static_cast<std::size_t>(id) >= weights_.size())
      throw std::invalid_argument("stream: found weight " + std::to_string(id) + ", expected one that was added");
    Weight& weight = weights_[static_cast<std::size_t>(id)];
    if (weight.request.is_vector() || weight.is_streamed)
      throw std::invalid_argument(weight.request.name + ": found streamed, expected a matrix, and once");
    if (weight.request.is_packed && !spec(weight.request.format).is_float)
      for (const PartAddress& part : weight.request.parts)
        if (part.offset % kPartAlignment != 0)
          throw std::invalid_argument(weight.request.name + ": found a part at byte " + std::to_string(part.offset) +
                                      ", expected a multiple of " + std::to_string(kPartAlignment) +
                                      "; convert the model again");
    weight.is_streamed = true;
  };
  for (const WeightId id : plan.neurons.weights) {
    mark(id);
    if (weights_[static_cast<std::size_t>(id)].request.neuron_bits == 0)
      throw std::invalid_argument(name(id) + ": found it row by row, expected one that lies neuron by neuron");
  }
  const auto mark_rows = [&](WeightId id) {
    mark(id);
    if (weights_[static_cast<std::size_t>(id)].request.neuron_bits != 0)
      throw std::invalid_argument(name(id) + ": found it neuron by neuron, expected a matrix that lies row by row");
  };
  for (const StreamPlan::Cut& cut : plan.cuts) mark_rows(cut.id);
  for (const WeightId id : plan.lookups) mark_rows(id);
  for (const std::vector<WeightId>& layer : plan.experts.layers)
    for (const WeightId id : layer) mark_rows(id);
  plan_ = std::make_unique<StreamPlan>(plan);
  reader_options_ = options;
}

void WeightStore::start_loading(int num_threads, bool is_budgeted) {
  is_budgeted_ = is_budgeted;
  arena_ = Memory(static_cast<std::size_t>(place()));
  reading_ = std::make_unique<Reading>();
  reading_->tasks = split_into_tasks();
  try {
    for (int i = 0; i < num_threads; ++i) {
      {
        const std::lock_guard<std::mutex> lock(reading_->mutex);
        ++reading_->num_running;
      }
      reading_->threads.emplace_back([this] { read_tasks(*reading_); });
    }
  } catch (...) {
    stop_reading();
    throw;
  }
}

void WeightStore::finish_loading(const std::function<void(std::int64_t, std::int64_t)>& progress) {
  if (reading_ == nullptr) throw std::logic_error("weights: found no reading to finish, expected start_loading before");
  Reading& reading = *reading_;
  std::int64_t total = 0;
  for (const ReadTask& task : reading.tasks) total += task.num_bytes;
  try {
    std::unique_lock<std::mutex> lock(reading.mutex);
    while (!reading.changed.wait_for(lock, kProgressInterval, [&] { return reading.num_running == 0; })) {
      if (!progress) continue;
      lock.unlock();
      progress(reading.done_bytes.load(), total);
      lock.lock();
    }
    lock.unlock();
    if (reading.error) std::rethrow_exception(reading.error);
    if (progress) progress(total, total);
  } catch (...) {
    stop_reading();
    throw;
  }
  for (std::thread& thread : reading.threads) thread.join();
  reading_.reset();
  for (Weight& weight : weights_) {
    for (int p = 0; p < kMaxParts; ++p)
      if (!weight.is_streamed || weight.arena_offsets[static_cast<std::size_t>(p)] > 0)
        weight.view.parts[static_cast<std::size_t>(p)] =
            arena_.data() + weight.arena_offsets[static_cast<std::size_t>(p)];
    if (weight.request.outliers.empty()) continue;
    weight.view.outlier_starts = reinterpret_cast<const std::uint32_t*>(arena_.data() + weight.outlier_starts_offset);
    weight.view.outliers = reinterpret_cast<const Outlier*>(arena_.data() + weight.outliers_offset);
  }
  // Also what the system read ahead of what was asked for.
  if (is_budgeted_)
    for (const File& file : files_) file.drop_cached(0, 0);
  if (plan_ != nullptr) open_stream();
}

void WeightStore::open_stream() {
  std::vector<const WeightRequest*> requests;
  std::vector<const WeightView*> views;
  for (const Weight& weight : weights_) {
    requests.push_back(&weight.request);
    views.push_back(&weight.view);
  }
  stream_ = std::make_unique<WeightStream>(files_, requests, views, *plan_, reader_options_);
  plan_.reset();
}

void WeightStore::stop_reading() {
  if (reading_ == nullptr) return;
  reading_->next.store(reading_->tasks.size());
  for (std::thread& thread : reading_->threads) thread.join();
  reading_.reset();
  arena_ = Memory();
}

}  // namespace edgert
