#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <string>
#include <vector>

#include "bindings/bindings.h"

namespace py = pybind11;

namespace edgert {
namespace {

template <typename T, typename Event, typename Get>
py::array_t<T> column(const std::vector<Event>& events, Get&& get) {
  py::array_t<T> out(static_cast<py::ssize_t>(events.size()));
  T* values = out.mutable_data();
  for (std::size_t i = 0; i < events.size(); ++i) values[i] = static_cast<T>(get(events[i]));
  return out;
}

}  // namespace

py::dict stop_trace(Runtime& runtime) {
  const auto [steps, stream] = runtime.stop_trace();
  const WeightStore& store = runtime.store();
  py::list kinds, names;
  for (const StepTrace::Step& step : steps.steps)
    kinds.append(py::make_tuple(step_kind_name(step.kind), step.weight < 0 ? std::string() : store.name(step.weight)));
  for (std::size_t i = 0; i < store.num_weights(); ++i) names.append(store.name(static_cast<WeightId>(i)));
  py::dict out;
  out["steps"] = kinds;
  out["names"] = names;
  out["max_events"] = kMaxTraceEvents;
  out["step_index"] = column<std::int32_t>(steps.events, [](const StepEvent& e) { return e.step; });
  out["step_phase"] = column<std::uint8_t>(steps.events, [](const StepEvent& e) { return e.phase; });
  out["step_begin_s"] = column<double>(steps.events, [](const StepEvent& e) { return e.begin_s; });
  out["step_end_s"] = column<double>(steps.events, [](const StepEvent& e) { return e.end_s; });
  out["wait_weight"] = column<std::int32_t>(stream.waits, [](const WaitEvent& e) { return e.weight; });
  out["wait_begin_s"] = column<double>(stream.waits, [](const WaitEvent& e) { return e.begin_s; });
  out["wait_end_s"] = column<double>(stream.waits, [](const WaitEvent& e) { return e.end_s; });
  using Read = StreamTrace::Read;
  out["read_weight"] = column<std::int32_t>(stream.reads, [](const Read& r) { return r.weight; });
  out["read_first_strip"] = column<std::int32_t>(stream.reads, [](const Read& r) { return r.first_strip; });
  out["read_num_strips"] = column<std::int32_t>(stream.reads, [](const Read& r) { return r.num_strips; });
  out["read_num_bytes"] = column<std::int64_t>(stream.reads, [](const Read& r) { return r.event.num_bytes; });
  out["read_priority"] = column<std::uint8_t>(stream.reads, [](const Read& r) { return r.event.priority; });
  out["read_begin_s"] = column<double>(stream.reads, [](const Read& r) { return r.event.begin_s; });
  out["read_end_s"] = column<double>(stream.reads, [](const Read& r) { return r.event.end_s; });
  return out;
}

}  // namespace edgert
