#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>

#include "bindings/bindings.h"
#include "weights/store.h"

namespace py = pybind11;

namespace edgert {
namespace {

using Range = std::tuple<std::int32_t, std::int64_t, std::int64_t>;  // file, offset, length

WeightId add(WeightStore& store, const std::string& name, const std::string& format, std::int64_t rows,
             std::int64_t cols, const std::vector<Range>& parts, bool is_packed, std::int32_t unpermute_heads,
             std::int32_t scale_exponent, const std::vector<Range>& outliers) {
  WeightRequest request{.name = name,
                        .format = Format::f32,
                        .rows = rows,
                        .cols = cols,
                        .parts = {},
                        .is_packed = is_packed,
                        .unpermute_heads = unpermute_heads,
                        .scale_exponent = scale_exponent,
                        .outliers = {}};
  if (!format_from_name(format.c_str(), request.format))
    throw std::invalid_argument(name + ": found format '" + format + "', which has no kernel");
  for (const auto& [file, offset, length] : parts) request.parts.push_back({file, offset, length});
  for (const auto& [file, offset, length] : outliers) request.outliers.push_back({file, offset, length});
  return store.add(request);
}

// The bytes in memory of a part; they belong to the store.
py::array part(const std::shared_ptr<WeightStore>& store, const std::string& name, int index) {
  const WeightId id = store->find(name);
  if (id < 0) throw std::invalid_argument(name + ": found no weight of this name");
  const WeightView& w = store->pin(id);
  if (index < 0 || index >= spec(w.format).num_parts || w.parts[0] == nullptr)
    throw std::invalid_argument(name + ": found no part " + std::to_string(index) + " in memory");
  const std::int64_t num_bytes = part_bytes(w.format, index, w.rows, w.cols == 0 ? 1 : w.cols);
  py::array bytes(py::dtype::of<std::uint8_t>(), {num_bytes}, {1}, w.parts[static_cast<std::size_t>(index)],
                  py::cast(store));
  bytes.attr("setflags")(py::arg("write") = false);
  return bytes;
}

}  // namespace

void init_weights(py::module_& m) {
  py::class_<WeightStore, std::shared_ptr<WeightStore>>(m, "WeightStore", "Where the weights of a model are.")
      .def(py::init<>())
      .def("add_file", &WeightStore::add_file, py::arg("path"), "Opens a file; returns its index.")
      .def("add", &add, py::arg("name"), py::arg("format"), py::arg("rows"), py::arg("cols"), py::arg("parts"),
           py::kw_only(), py::arg("is_packed") = false, py::arg("unpermute_heads") = 0, py::arg("scale_exponent") = 0,
           py::arg("outliers") = std::vector<Range>(),
           "parts: (file, offset, length). cols = 0: a vector. is_packed: the parts of the format lie in the file, "
           "not rows. unpermute_heads: rows of a GGUF file in RoPE pairs are put back. scale_exponent: scales are "
           "multiplied by 2 to this power. outliers: their starts, columns and values, or nothing.")
      .def("start_loading", &WeightStore::start_loading, py::arg("threads"), py::call_guard<py::gil_scoped_release>(),
           "Begins to read every weight, on threads of its own.")
      .def("finish_loading", &WeightStore::finish_loading, py::arg("progress") = nullptr,
           py::call_guard<py::gil_scoped_release>(), "Waits until all are read; progress(done_bytes, total_bytes).")
      .def("load", &WeightStore::load, py::arg("threads"), py::arg("progress") = nullptr,
           py::call_guard<py::gil_scoped_release>(), "start_loading and finish_loading.")
      .def("part", &part, py::arg("name"), py::arg("index"),
           "The bytes of a part as they lie in memory, uint8, read-only; a vector is float32. After finish_loading.")
      .def_property_readonly("resident_bytes", &WeightStore::resident_bytes)
      .def_property_readonly("num_weights", &WeightStore::num_weights);
}

}  // namespace edgert
