// What thread 0 did, and when, as a trace shows it.
#pragma once
#include <cstdint>
#include <vector>

#include "graph/plan.h"

namespace edgert {

enum class StepPhase : std::uint8_t {
  starting,  // lays the work open and wakes the helpers
  working,   // on its own share of the items; what it waits for the disk included
  waiting,   // for the others' share
};

// Seconds of std::chrono::steady_clock since its epoch, as those of ReadEvent.
struct StepEvent {
  std::int32_t step = 0;  // of the plan
  StepPhase phase = StepPhase::working;
  double begin_s = 0, end_s = 0;
};

struct StepTrace {
  struct Step {
    StepKind kind = StepKind::embed;
    WeightId weight = -1;  // its first one, where it has any
  };
  std::vector<Step> steps;
  std::vector<StepEvent> events;  // kMaxTraceEvents at most
};

}  // namespace edgert
