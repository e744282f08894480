// What one step computes: spans of tokens, each appended to its sequence.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "kv/kv_store.h"

namespace edgert {

enum class LogitsMode : std::uint8_t { none, last, all };

// A range of cached positions.
struct Segment {
  std::int32_t begin = 0, end = 0;
};

struct Span {
  SequenceId sequence = 0;
  std::span<const std::int32_t> tokens;
  LogitsMode logits = LogitsMode::last;
  // Rotary positions, one a token; empty: the places in the cache.
  std::span<const std::int32_t> positions;
  // Row-major tokens x tokens: may token i read token j of this span? Empty: j <= i.
  std::span<const std::uint8_t> tree_mask;
  // Cached positions before this span that may be read, ascending; empty: all of them.
  std::span<const Segment> segments;
};

}  // namespace edgert
