// The names of the steps, in profiles and traces.
#include "graph/plan.h"

namespace edgert {

const char* step_kind_name(StepKind kind) {
  switch (kind) {
    case StepKind::rope_tables:
      return "rope_tables";
    case StepKind::embed:
      return "embed";
    case StepKind::rms_norm:
      return "rms_norm";
    case StepKind::quantize:
      return "quantize";
    case StepKind::linear:
      return "linear";
    case StepKind::rope:
      return "rope";
    case StepKind::store_kv:
      return "store_kv";
    case StepKind::attention:
      return "attention";
    case StepKind::add:
      return "add";
    case StepKind::silu_mul:
      return "silu_mul";
    case StepKind::gelu_mul:
      return "gelu_mul";
    case StepKind::relu2:
      return "relu2";
    case StepKind::scale:
      return "scale";
    case StepKind::soft_cap:
      return "soft_cap";
    case StepKind::gather:
      return "gather";
    case StepKind::moe_route:
      return "moe_route";
    case StepKind::moe_sort:
      return "moe_sort";
    case StepKind::moe_gate_up:
      return "moe_gate_up";
    case StepKind::moe_act:
      return "moe_act";
    case StepKind::moe_down:
      return "moe_down";
    case StepKind::moe_combine:
      return "moe_combine";
  }
  return "";
}

}  // namespace edgert
