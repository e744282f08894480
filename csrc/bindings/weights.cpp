#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
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
             std::int32_t scale_exponent, std::int32_t neuron_bits, const std::vector<Range>& outliers) {
  WeightRequest request{.name = name,
                        .format = Format::f32,
                        .rows = rows,
                        .cols = cols,
                        .parts = {},
                        .is_packed = is_packed,
                        .unpermute_heads = unpermute_heads,
                        .scale_exponent = scale_exponent,
                        .neuron_bits = neuron_bits,
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
  if (index < 0 || index >= spec(w.format).num_parts || w.parts[0] == nullptr || store->is_streamed(id))
    throw std::invalid_argument(name + ": found no part " + std::to_string(index) + " in memory");
  const std::int64_t num_bytes = part_bytes(w.format, index, w.rows, w.cols == 0 ? 1 : w.cols);
  py::array bytes(py::dtype::of<std::uint8_t>(), {num_bytes}, {1}, w.parts[static_cast<std::size_t>(index)],
                  py::cast(store));
  bytes.attr("setflags")(py::arg("write") = false);
  return bytes;
}

// See StreamPlan; weights by name. Depth, chunk and limit: ReaderOptions.
void set_stream(WeightStore& store, const std::vector<std::pair<std::string, std::vector<std::int32_t>>>& cuts,
                const std::vector<std::pair<std::int32_t, std::int32_t>>& lock_order,
                const std::vector<std::string>& lookups, std::int64_t pool_bytes, std::int64_t ring_bytes,
                std::int64_t lent_bytes, const std::vector<std::vector<std::string>>& experts, std::int32_t top_k,
                std::int64_t expert_bytes, std::int32_t miss_bits, const std::vector<std::string>& neurons,
                std::int64_t neuron_bytes, const std::vector<py::array_t<float, py::array::c_style>>& neuron_frequency,
                const std::string& policy, const std::string& predictor, std::int32_t depth, std::int64_t chunk_bytes,
                std::int64_t limit_bytes_per_s, const std::string& method, const std::optional<Faults>& faults) {
  StreamPlan plan{.cuts = {},
                  .lock_order = lock_order,
                  .lookups = {},
                  .pool_bytes = pool_bytes,
                  .lent_bytes = lent_bytes,
                  .ring_bytes = ring_bytes,
                  .experts = {},
                  .neurons = {.weights = {}, .bytes = neuron_bytes, .frequency = {}}};
  for (const auto& [name, strips] : cuts) plan.cuts.push_back({store.find(name), strips});
  for (const std::string& name : lookups) plan.lookups.push_back(store.find(name));
  for (const std::string& name : neurons) plan.neurons.weights.push_back(store.find(name));
  for (const py::array_t<float, py::array::c_style>& of : neuron_frequency)
    plan.neurons.frequency.emplace_back(of.data(), of.data() + of.size());
  plan.experts = {.layers = {},
                  .top_k = top_k,
                  .bytes = expert_bytes,
                  .policy = policy,
                  .predictor = predictor,
                  .miss_bits = miss_bits};
  for (const std::vector<std::string>& layer : experts) {
    plan.experts.layers.emplace_back();
    for (const std::string& name : layer) plan.experts.layers.back().push_back(store.find(name));
  }
  store.set_stream(plan, reader_options(method, depth, chunk_bytes, limit_bytes_per_s, faults));
}

void start_loading(WeightStore& store, int threads, bool is_budgeted, std::int32_t depth, std::int64_t chunk_bytes,
                   const std::string& method, const std::optional<Faults>& faults) {
  std::optional<ReaderOptions> direct;
  if (is_budgeted) direct = reader_options(method, depth, chunk_bytes, 0, faults);
  store.start_loading(threads, direct);
}

}  // namespace

// What the stream has done: totals, and (hits, late, waited_s) of each weight that is streamed.
py::dict stream_counters(const WeightStore& store) {
  py::dict out;
  if (store.stream() == nullptr) return out;
  const StreamCounters c = store.stream()->counters();
  out["num_reads"] = c.reads.num_reads;
  out["num_bytes"] = c.reads.num_bytes;
  out["busy_s"] = c.reads.busy_s;
  out["wasted_bytes"] = c.wasted_bytes;
  out["locked_bytes"] = c.locked_bytes;
  out["num_expert_slots"] = c.num_expert_slots;
  py::dict weights;
  for (std::size_t i = 0; i < c.weights.size(); ++i)
    if (store.is_streamed(static_cast<WeightId>(i)))
      weights[py::str(store.name(static_cast<WeightId>(i)))] =
          py::make_tuple(c.weights[i].num_hits, c.weights[i].num_late, c.weights[i].waited_s);
  out["weights"] = weights;
  py::list experts;
  for (const ExpertCounters& e : c.experts)
    experts.append(py::dict(py::arg("routed") = e.routed, py::arg("hits") = e.hits, py::arg("late") = e.late_hits,
                            py::arg("misses") = e.misses, py::arg("prefetched") = e.prefetch_loads,
                            py::arg("wasted") = e.wasted, py::arg("coarse") = e.coarse));
  out["experts"] = experts;
  py::list neurons;
  for (const NeuronCounters& n : c.neurons)
    neurons.append(py::dict(py::arg("active") = n.active, py::arg("hits") = n.hits,
                            py::arg("missed_bytes") = n.missed_bytes, py::arg("requested_bytes") = n.requested_bytes,
                            py::arg("sector_bytes") = n.sector_bytes, py::arg("filled_bytes") = n.filled_bytes));
  out["neurons"] = neurons;
  return out;
}

void init_weights(py::module_& m) {
  const ReaderOptions defaults;
  py::class_<WeightStore, std::shared_ptr<WeightStore>>(m, "WeightStore", "Where the weights of a model are.")
      .def(py::init<>())
      .def("add_file", &WeightStore::add_file, py::arg("path"), "Opens a file; returns its index.")
      .def("add", &add, py::arg("name"), py::arg("format"), py::arg("rows"), py::arg("cols"), py::arg("parts"),
           py::kw_only(), py::arg("is_packed") = false, py::arg("unpermute_heads") = 0, py::arg("scale_exponent") = 0,
           py::arg("neuron_bits") = 0, py::arg("outliers") = std::vector<Range>(),
           "parts: (file, offset, length). cols = 0: a vector. is_packed: the parts of the format lie in the file, "
           "not rows. unpermute_heads: rows of a GGUF file in RoPE pairs are put back. scale_exponent: scales are "
           "multiplied by 2 to this power. neuron_bits: not 0, and the last part has the codes neuron by neuron, of so "
           "many bits each. outliers: their starts, columns and values, or nothing.")
      .def(
          "set_stream", &set_stream, py::kw_only(), py::arg("cuts"), py::arg("lock_order"), py::arg("lookups"),
          py::arg("pool_bytes"), py::arg("ring_bytes"), py::arg("lent_bytes") = 0,
          py::arg("experts") = std::vector<std::vector<std::string>>{}, py::arg("top_k") = 0,
          py::arg("expert_bytes") = 0, py::arg("miss_bits") = 0, py::arg("neurons") = std::vector<std::string>{},
          py::arg("neuron_bytes") = 0,
          py::arg("neuron_frequency") = std::vector<py::array_t<float, py::array::c_style>>{},
          py::arg("policy") = kDefaultPolicy, py::arg("predictor") = kDefaultPredictor,
          py::arg("depth") = defaults.depth, py::arg("chunk_bytes") = defaults.chunk_bytes,
          py::arg("limit_bytes_per_s") = 0, py::arg("method") = "auto", py::arg("faults") = py::none(),
          "What is not resident. cuts: (name, first strips of its pieces) in the order of use. lock_order: (index "
          "into cuts, "
          "piece), the first is kept first. lookups: names of which rows are read when they are asked for. "
          "lent_bytes: of pool_bytes, or without cuts of expert_bytes, what activations, keys and values take. "
          "experts: of each layer gate, up, down "
          "of expert 0, of expert 1, ...; they share expert_bytes. miss_bits: those that are not there when the router "
          "asks are computed at so many bits, where they nest; 0: waited for. neurons: names of matrices that are read "
          "neuron by neuron, in the order of use; they share neuron_bytes. neuron_frequency: of each of them the share "
          "of "
          "tokens that activated each neuron, on another text; or nothing. faults: of the disk, for "
          "tests.")
      .def("start_loading", &start_loading, py::arg("threads"), py::arg("is_budgeted") = false, py::kw_only(),
           py::arg("depth") = defaults.depth, py::arg("chunk_bytes") = defaults.chunk_bytes, py::arg("method") = "auto",
           py::arg("faults") = py::none(), py::call_guard<py::gil_scoped_release>(),
           "Begins to read every weight that is not streamed, on threads of its own. is_budgeted: past the page cache, "
           "as the options say.")
      .def("finish_loading", &WeightStore::finish_loading, py::arg("progress") = nullptr,
           py::call_guard<py::gil_scoped_release>(), "Waits until all are read; progress(done_bytes, total_bytes).")
      .def("load", &WeightStore::load, py::arg("threads"), py::arg("progress") = nullptr,
           py::call_guard<py::gil_scoped_release>(), "start_loading and finish_loading.")
      .def("stream_counters", &stream_counters, "What was read while steps ran; empty where nothing is streamed.")
      .def("part", &part, py::arg("name"), py::arg("index"),
           "The bytes of a part as they lie in memory, uint8, read-only; a vector is float32. After finish_loading.")
      .def_property_readonly("resident_bytes", &WeightStore::resident_bytes)
      .def_property_readonly("num_weights", &WeightStore::num_weights);
}

}  // namespace edgert
