// One init function a class; these files only convert (docs/architecture.md).
#pragma once
#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <string>

#include "formats/kv.h"
#include "graph/runtime.h"
#include "io/faulty_backend.h"
#include "io/reader.h"
#include "weights/store.h"

namespace edgert {

// Throws std::invalid_argument for an unknown name.
KVFormat kv_format_of(const std::string& name);
ReaderOptions reader_options(const std::string& method, std::int32_t depth, std::int64_t chunk_bytes,
                             std::int64_t limit_bytes_per_s, const std::optional<Faults>& faults);
// What was streamed so far; empty where nothing is.
pybind11::dict stream_counters(const WeightStore& store);
// What happened since Runtime::start_trace, in columns.
pybind11::dict stop_trace(Runtime& runtime);

void init_errors(pybind11::module_& m);
void init_cpu(pybind11::module_& m);
void init_kernels(pybind11::module_& m);
void init_weights(pybind11::module_& m);
void init_runtime(pybind11::module_& m);
void init_sampler(pybind11::module_& m);
void init_reader(pybind11::module_& m);
void init_experts(pybind11::module_& m);

}  // namespace edgert
