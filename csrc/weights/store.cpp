#include "weights/store.h"

#include <chrono>
#include <stdexcept>
#include <string_view>

#include "weights/piece.h"

namespace edgert {
namespace {

constexpr std::int64_t kMaxDimension = std::int64_t{1} << 31;
constexpr std::int64_t kMaxElements = std::int64_t{1} << 48;  // far above any file; products of bytes cannot overflow
constexpr std::int64_t kPartAlignment = 64;
constexpr std::int32_t kMaxScaleExponent = 5;  // a p7 at 2 bits
constexpr std::chrono::milliseconds kProgressInterval{50};

}  // namespace

WeightStore::WeightStore() = default;
WeightStore::~WeightStore() { stop_loading(); }

std::int32_t WeightStore::add_file(const std::string& path) {
  files_.emplace_back(path);
  return static_cast<std::int32_t>(files_.size()) - 1;
}

WeightId WeightStore::add(const WeightRequest& request) {
  const auto fail = [&](const std::string& what) { throw std::invalid_argument(request.name + ": " + what); };
  if (loading_ != nullptr) fail("added while weights are read, expected before");
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
      if (!is_loaded(r, p, weight.is_streamed)) continue;
      weight.places.parts[static_cast<std::size_t>(p)] = end;
      end += round_up(num_bytes, kPartAlignment);
    }
    if (r.outliers.empty()) continue;
    weight.places.outlier_starts = end;
    end += round_up(4 * (std::int64_t{weight.view.strips} + 1), kPartAlignment);
    weight.places.outliers = end;
    end += round_up(r.outliers[1].length / 2 * static_cast<std::int64_t>(sizeof(Outlier)), kPartAlignment);
  }
  return end + kPartAlignment;
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

void WeightStore::start_loading(int num_threads, const std::optional<ReaderOptions>& direct) {
  is_budgeted_ = direct.has_value();
  arena_ = Memory(static_cast<std::size_t>(place()));
  std::vector<LoadItem> items;
  for (const Weight& weight : weights_) items.push_back({&weight.request, &weight.places, weight.is_streamed});
  try {
    loading_ = std::make_unique<Loading>(files_, std::move(items), arena_.data(), num_threads, direct);
  } catch (...) {
    stop_loading();
    throw;
  }
}

void WeightStore::finish_loading(const std::function<void(std::int64_t, std::int64_t)>& progress) {
  if (loading_ == nullptr) throw std::logic_error("weights: found no reading to finish, expected start_loading before");
  try {
    while (!loading_->wait_for(kProgressInterval))
      if (progress) progress(loading_->done_bytes(), loading_->total_bytes());
    loading_->rethrow();
    if (progress) progress(loading_->total_bytes(), loading_->total_bytes());
  } catch (...) {
    stop_loading();
    throw;
  }
  loading_.reset();
  for (Weight& weight : weights_) {
    for (std::size_t p = 0; p < kMaxParts; ++p)
      if (!weight.is_streamed || weight.places.parts[p] > 0)
        weight.view.parts[p] = arena_.data() + weight.places.parts[p];
    if (weight.request.outliers.empty()) continue;
    weight.view.outlier_starts = reinterpret_cast<const std::uint32_t*>(arena_.data() + weight.places.outlier_starts);
    weight.view.outliers = reinterpret_cast<const Outlier*>(arena_.data() + weight.places.outliers);
  }
  // What was read of the files before: their headers.
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

void WeightStore::stop_loading() {
  loading_.reset();
  arena_ = Memory();
}

}  // namespace edgert
