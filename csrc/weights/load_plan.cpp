#include "weights/load_plan.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/memory.h"
#include "io/reader.h"

namespace edgert {
namespace {

// Bytes of a part are cut where a cache line begins.
constexpr std::int64_t kCutBytes = 64;

// A part, all rows or columns of a weight, or all its outliers: not cut yet.
struct Whole {
  const LoadItem* item;
  std::int32_t part;
  bool are_outliers;
  PartAddress address;
  std::int64_t unit_bytes;  // that are not cut
};

// Bytes of what a range counts.
std::int64_t unit_of(const WeightRequest& request, std::int32_t part) {
  return part == kRows      ? file_row_bytes(request)
         : part == kNeurons ? neuron_bytes(request.neuron_bits, request.rows)
                            : 1;
}

std::vector<Whole> wholes_of(std::span<const LoadItem> items) {
  std::vector<Whole> wholes;
  for (const LoadItem& item : items) {
    const WeightRequest& r = *item.request;
    if (!r.outliers.empty()) wholes.push_back({&item, 0, true, r.outliers[0], 0});
    if (r.is_direct() || r.neuron_bits != 0) {
      const std::size_t num_parts = r.parts.size() - (r.neuron_bits != 0 ? 1 : 0);
      if (num_parts < r.parts.size() && !item.is_streamed)
        wholes.push_back({&item, kNeurons, false, r.parts.back(), kGroupColumns * unit_of(r, kNeurons)});
      for (std::size_t p = 0; p < num_parts; ++p)
        if (is_loaded(r, static_cast<int>(p), item.is_streamed))
          wholes.push_back({&item, static_cast<std::int32_t>(p), false, r.parts[p], kCutBytes});
    } else if (!item.is_streamed) {
      wholes.push_back({&item, kRows, false, r.parts[0], row_unit(r) * file_row_bytes(r)});
    }
  }
  std::sort(wholes.begin(), wholes.end(), [](const Whole& a, const Whole& b) {
    return std::tie(a.address.file, a.address.offset) < std::tie(b.address.file, b.address.offset);
  });
  return wholes;
}

class Planner {
 public:
  explicit Planner(std::int64_t read_bytes) : read_bytes_(read_bytes) {}

  void add(const Whole& whole) {
    if (whole.are_outliers) return add_outliers(*whole.item);
    const std::int64_t length = whole.address.length;
    for (std::int64_t begin = 0; begin < length;) {
      const std::int64_t offset = whole.address.offset + begin, left = length - begin;
      const std::int64_t room = room_at(whole.address.file, offset);
      std::int64_t count = left <= room ? left : room / whole.unit_bytes * whole.unit_bytes;
      if (count <= 0) {
        end_task();
        count = std::min(
            left, std::max<std::int64_t>((read_bytes_ - window_lead(offset)) / whole.unit_bytes, 1) * whole.unit_bytes);
      }
      add_range(whole, begin, count);
      begin += count;
    }
  }

  std::vector<LoadTask> finish() {
    end_task();
    return std::move(tasks_);
  }

 private:
  // Bytes from `offset` on that the task can still take; 0 where it lies elsewhere.
  std::int64_t room_at(std::int32_t file, std::int64_t offset) const {
    if (task_.segments.empty()) return 0;
    const PieceSegment& s = task_.segments[0];
    if (s.file != file || offset < s.offset || offset - (s.offset + s.length) >= kMergedGap) return 0;
    return s.offset - window_lead(s.offset) + read_bytes_ - offset;
  }

  void add_range(const Whole& whole, std::int64_t begin, std::int64_t count) {
    const std::int64_t offset = whole.address.offset + begin;
    if (task_.segments.empty()) task_.segments.push_back({whole.address.file, offset, 0, 0});
    PieceSegment& s = task_.segments[0];
    s.length = std::max(s.length, offset + count - s.offset);
    const std::int64_t unit = unit_of(*whole.item->request, whole.part);
    task_.ranges.push_back(
        {whole.item, whole.part, begin / unit, count / unit, window_lead(s.offset) + offset - s.offset});
    task_.num_bytes += count;
  }

  void end_task() {
    if (task_.segments.empty()) return;
    for (PieceSegment& s : task_.segments) {
      s.place = task_.memory_bytes;
      task_.memory_bytes += window_bytes(s.length);
    }
    tasks_.push_back(std::exchange(task_, {}));
  }

  void add_outliers(const LoadItem& item) {
    end_task();
    task_.outliers_of = &item;
    for (const PartAddress& address : item.request->outliers) {
      task_.segments.push_back({address.file, address.offset, address.length, 0});
      task_.num_bytes += address.length;
    }
    end_task();
  }

  const std::int64_t read_bytes_;
  LoadTask task_;  // what is added to
  std::vector<LoadTask> tasks_;
};

}  // namespace

bool is_loaded(const WeightRequest& request, int part, bool is_streamed) {
  if (!is_streamed) return true;
  return request.neuron_bits != 0 ? part < num_scale_parts(request.format) : strip_part_bytes(request, part) == 0;
}

PartAddress LoadRange::address() const {
  const WeightRequest& r = *item->request;
  const PartAddress& whole =
      part == kNeurons ? r.parts.back() : r.parts[part == kRows ? 0 : static_cast<std::size_t>(part)];
  const std::int64_t unit = unit_of(r, part);
  return {whole.file, whole.offset + begin * unit, count * unit};
}

std::vector<LoadTask> plan_load(std::span<const LoadItem> items, std::int64_t read_bytes) {
  Planner planner(read_bytes);
  for (const Whole& whole : wholes_of(items)) planner.add(whole);
  return planner.finish();
}

}  // namespace edgert
