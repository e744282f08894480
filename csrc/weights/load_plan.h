// What a load reads, and in which order: a pure function of where the weights lie.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "weights/piece.h"
#include "weights/request.h"

namespace edgert {

// Where a weight lies in the arena; 0: this part does not.
struct ArenaPlaces {
  std::array<std::int64_t, kMaxParts> parts{};
  std::int64_t outlier_starts = 0, outliers = 0;
};

// is_streamed: only the parts that a tensor has once, and its outliers, are read now.
struct LoadItem {
  const WeightRequest* request = nullptr;
  const ArenaPlaces* places = nullptr;
  bool is_streamed = false;
};

// Whether a part is read when the weights are loaded. Of what is streamed: what a tensor has once; of a matrix that
// lies neuron by neuron all but its codes.
bool is_loaded(const WeightRequest& request, int part, bool is_streamed);

inline constexpr std::int32_t kRows = -1, kNeurons = -2;  // in place of a part

// Bytes [begin, begin + count) of a part, or rows, or columns that lie neuron by neuron. place: where they lie in the
// memory of the task.
struct LoadRange {
  const LoadItem* item = nullptr;
  std::int32_t part = 0;  // or kRows, kNeurons
  std::int64_t begin = 0, count = 0;
  std::int64_t place = 0;

  PartAddress address() const;
};

// What one thread puts in its place at a time: ranges that are neighbours in a file, or the outliers of a weight.
struct LoadTask {
  std::vector<PieceSegment> segments;  // of outliers one each: starts, columns, values
  std::vector<LoadRange> ranges;       // none: outliers
  const LoadItem* outliers_of = nullptr;
  std::int64_t memory_bytes = 0;  // of the windows
  std::int64_t num_bytes = 0;     // that are put in their place
};

// In the order of the files. A window has at most read_bytes, a multiple of kDirectAlignment, where rows or columns
// that belong together are not longer; of the outliers of a weight each part is a window of its own. The items outlive
// the tasks.
std::vector<LoadTask> plan_load(std::span<const LoadItem> items, std::int64_t read_bytes);

}  // namespace edgert
