#include "graph/runtime.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include "bindings/bindings.h"

namespace py = pybind11;

namespace edgert {
namespace {

template <typename T>
using Array = py::array_t<T, py::array::c_style>;
using Attributes = std::map<std::string, double>;
using NodeTuple =
    std::tuple<std::string, std::vector<std::int32_t>, std::vector<std::string>, Attributes, std::int32_t>;

double number(const Attributes& attributes, const char* name) {
  const auto it = attributes.find(name);
  return it == attributes.end() ? 0.0 : it->second;
}

std::int32_t integer(const Attributes& attributes, const char* name) {
  const double value = number(attributes, name);
  if (!(value >= 0 && value <= std::numeric_limits<std::int32_t>::max()))
    throw std::invalid_argument(std::string("graph: found an impossible ") + name);
  return static_cast<std::int32_t>(value);
}

Op op_from_name(const std::string& name) {
  static const std::map<std::string, Op> ops = {
      {"embed", Op::embed},         {"rms_norm", Op::rms_norm}, {"linear", Op::linear},     {"rope", Op::rope},
      {"attention", Op::attention}, {"add", Op::add},           {"silu_mul", Op::silu_mul}, {"gelu_mul", Op::gelu_mul},
      {"relu2", Op::relu2},         {"scale", Op::scale},       {"soft_cap", Op::soft_cap}, {"moe", Op::moe}};
  const auto it = ops.find(name);
  if (it == ops.end()) throw std::invalid_argument("graph: found the operation '" + name + "', which the core lacks");
  return it->second;
}

Node node_from_tuple(const NodeTuple& tuple, const WeightStore& store) {
  const auto& [op, inputs, weights, a, width] = tuple;
  Node node{.op = op_from_name(op), .inputs = inputs, .weights = {}, .attributes = {}, .width = width};
  for (const std::string& name : weights) {
    const WeightId id = store.find(name);
    if (id < 0) throw std::invalid_argument("graph: the weight '" + name + "' has not been added");
    node.weights.push_back(id);
  }
  node.attributes = {.eps = static_cast<float>(number(a, "eps")),
                     .weight_offset = static_cast<float>(number(a, "weight_offset")),
                     .head_dim = integer(a, "head_dim"),
                     .rope = integer(a, "rope"),
                     .layer = integer(a, "layer"),
                     .num_heads = integer(a, "num_heads"),
                     .num_kv_heads = integer(a, "num_kv_heads"),
                     .window = integer(a, "window"),
                     .sinks = integer(a, "sinks"),
                     .scale = static_cast<float>(number(a, "scale")),
                     .soft_cap = static_cast<float>(number(a, "soft_cap")),
                     .num_experts = integer(a, "num_experts"),
                     .top_k = integer(a, "top_k"),
                     .intermediate_size = integer(a, "intermediate_size"),
                     .normalize = number(a, "normalize") != 0,
                     .min_expert_weight = static_cast<float>(number(a, "min_expert_weight"))};
  return node;
}

Graph graph_from_dict(const py::dict& args, const WeightStore& store) {
  Graph graph;
  for (const auto& tuple : args["nodes"].cast<std::vector<NodeTuple>>())
    graph.nodes.push_back(node_from_tuple(tuple, store));
  for (const py::handle item : args["ropes"].cast<py::list>()) {
    const auto rope = item.cast<py::dict>();
    graph.ropes.push_back({.head_dim = rope["head_dim"].cast<std::int32_t>(),
                           .rotary_dim = rope["rotary_dim"].cast<std::int32_t>(),
                           .theta = rope["theta"].cast<double>(),
                           .max_position_embeddings = rope["max_position_embeddings"].cast<std::int64_t>(),
                           .type = rope["type"].cast<std::string>(),
                           .scalars = rope["scalars"].cast<std::map<std::string, double>>(),
                           .lists = rope["lists"].cast<std::map<std::string, std::vector<double>>>()});
  }
  graph.output = args["output"].cast<std::int32_t>();
  return graph;
}

// (format, rows, cols, most tokens of the class, kernel)
using KernelChoice = std::tuple<std::string, std::int32_t, std::int32_t, std::int32_t, std::string>;
using KernelPick = std::tuple<KernelChoice, std::map<std::string, double>>;

LinearChoiceOptions choice_options(const std::string& forced, const std::vector<KernelChoice>& known, double budget_s) {
  LinearChoiceOptions options{.forced = forced, .known = {}, .budget_s = budget_s};
  for (const auto& [format_name, rows, cols, tokens, kernel] : known) {
    Format format;
    if (format_from_name(format_name.c_str(), format)) options.known[{format, rows, cols, tokens}] = kernel;
  }
  return options;
}

std::vector<KernelPick> kernels(const Runtime& runtime) {
  std::vector<KernelPick> picks;
  for (const LinearPick& pick : runtime.linear_picks())
    picks.emplace_back(KernelChoice{spec(pick.of.format).name, pick.of.rows, pick.of.cols, pick.of.tokens, pick.kernel},
                       std::map<std::string, double>(pick.seconds.begin(), pick.seconds.end()));
  return picks;
}

std::unique_ptr<Runtime> make_runtime(const py::dict& graph, std::shared_ptr<const WeightStore> store,
                                      const std::string& isa, std::int32_t threads, std::int32_t batch_tokens,
                                      std::int32_t round_tokens, std::int32_t context, const std::string& kv_format,
                                      std::int64_t kv_budget_bytes, const std::optional<KVSpill>& kv_spill,
                                      const std::string& kernel, const std::vector<KernelChoice>& known_kernels,
                                      double timing_budget_s) {
  RuntimeOptions options{.kernels = kernel_table(isa.c_str()),
                         .num_threads = threads,
                         .batch_tokens = batch_tokens,
                         .round_tokens = round_tokens,
                         .context = context,
                         .kv_format = kv_format_of(kv_format),
                         .kv_budget_bytes = kv_budget_bytes,
                         .kv_spill = kv_spill.value_or(KVSpill{}),
                         .choice = choice_options(kernel, known_kernels, timing_budget_s)};
  if (options.kernels == nullptr)
    throw std::invalid_argument("instruction set: found '" + isa + "', expected a supported level");
  Graph g = graph_from_dict(graph, *store);
  const py::gil_scoped_release release;
  return std::make_unique<Runtime>(std::move(g), std::move(store), options);
}

// Python's span: owns its arrays while the step runs.
struct PySpan {
  SequenceId sequence;
  Array<std::int32_t> tokens;
  LogitsMode logits;
  std::optional<Array<std::int32_t>> positions;
  std::optional<Array<std::uint8_t>> tree_mask;
  std::vector<Segment> segments;

  PySpan(SequenceId seq, Array<std::int32_t> ids, const std::string& mode, std::optional<Array<std::int32_t>> pos,
         std::optional<Array<std::uint8_t>> mask, const std::vector<std::pair<std::int32_t, std::int32_t>>& ranges)
      : sequence(seq), tokens(std::move(ids)), positions(std::move(pos)), tree_mask(std::move(mask)) {
    if (mode != "none" && mode != "last" && mode != "all")
      throw std::invalid_argument("logits: found '" + mode + "', expected none, last or all");
    logits = mode == "none" ? LogitsMode::none : mode == "last" ? LogitsMode::last : LogitsMode::all;
    for (const auto& [begin, end] : ranges) segments.push_back({begin, end});
  }
  Span view() const {
    Span span{.sequence = sequence,
              .tokens = flat(tokens),
              .logits = logits,
              .positions = {},
              .tree_mask = {},
              .segments = segments};
    if (positions) span.positions = flat(*positions);
    if (tree_mask) span.tree_mask = flat(*tree_mask);
    return span;
  }
  template <typename T>
  static std::span<const T> flat(const Array<T>& array) {
    return {array.data(), static_cast<std::size_t>(array.size())};
  }
};

py::array step(Runtime& runtime, const std::vector<const PySpan*>& py_spans) {
  std::vector<Span> spans;
  for (const PySpan* span : py_spans) spans.push_back(span->view());
  Logits logits;
  {
    const py::gil_scoped_release release;
    logits = runtime.step(spans, [] {
      const py::gil_scoped_acquire acquire;
      return PyErr_CheckSignals() != 0;
    });
  }
  auto owner = std::make_unique<std::shared_ptr<const Memory>>(logits.memory);
  const py::capsule base(owner.get(), [](void* p) { delete static_cast<std::shared_ptr<const Memory>*>(p); });
  owner.release();
  const auto stride = static_cast<py::ssize_t>(logits.stride * static_cast<std::int64_t>(sizeof(float)));
  py::array out(py::dtype::of<float>(),
                std::vector<py::ssize_t>{static_cast<py::ssize_t>(logits.num_rows), logits.vocab_size},
                std::vector<py::ssize_t>{stride, sizeof(float)}, logits.values, base);
  out.attr("setflags")(py::arg("write") = false);
  return out;
}

// Everything that stop_profile's docstring says, as plain values.
py::dict stop_profile(Runtime& runtime) {
  const Profile profile = runtime.stop_profile();
  const WeightStore& store = runtime.store();
  py::list steps;
  for (const StepTime& time : profile.steps) {
    const std::string weight = time.weight < 0 ? std::string() : store.name(time.weight);
    const WeightView view = time.weight < 0 ? WeightView{} : store.describe(time.weight);
    const char* format = time.weight < 0 ? "" : spec(view.format).name;
    steps.append(py::make_tuple(step_kind_name(time.kind), weight, format, view.rows, view.cols, time.working_s,
                                time.waiting_s));
  }
  py::dict out;
  out["num_runs"] = profile.num_runs;
  out["starting_s"] = profile.starting_s;
  out["steps"] = steps;
  return out;
}

template <typename T>
py::array_t<T> copied(const std::vector<T>& values, std::int32_t width) {
  const auto rows = static_cast<py::ssize_t>(values.size()) / width;
  return py::array_t<T>({rows, static_cast<py::ssize_t>(width)}, values.data());
}

using PyRoutedLayer = std::tuple<py::array_t<std::int16_t>, py::array_t<float>, std::optional<py::array_t<float>>>;

// One (experts, weights, gate_logits or None) a layer.
std::vector<PyRoutedLayer> stop_routing_trace(Runtime& runtime) {
  const RoutingTrace trace = runtime.stop_routing_trace();
  std::vector<PyRoutedLayer> layers;
  for (const RoutingTrace::Layer& layer : trace.layers) {
    std::optional<py::array_t<float>> gate_logits;
    if (!layer.gate_logits.empty()) gate_logits = copied(layer.gate_logits, layer.num_experts);
    layers.emplace_back(copied(layer.experts, layer.top_k), copied(layer.weights, layer.top_k), gate_logits);
  }
  return layers;
}

// By weight: tokens, and for each neuron those that activated it.
py::dict stop_neuron_counts(Runtime& runtime) {
  py::dict out;
  for (const NeuronCounts& counts : runtime.stop_neuron_counts())
    out[py::str(runtime.store().name(counts.weight))] =
        py::make_tuple(counts.num_tokens, py::array_t<std::uint32_t>(std::ssize(counts.active), counts.active.data()));
  return out;
}

SequenceId checked(const KVStore& kv, SequenceId sequence) {
  if (kv.is_open(sequence)) return sequence;
  throw std::invalid_argument("sequence: found " + std::to_string(sequence) + ", expected an open one");
}

void rewind(Runtime& runtime, SequenceId sequence, std::int32_t length) {
  KVStore& kv = runtime.kv();
  if (length < 0 || length > kv.length(checked(kv, sequence)))
    throw std::invalid_argument("rewind: found length " + std::to_string(length) + ", expected 0 to " +
                                std::to_string(kv.length(sequence)));
  kv.rewind(sequence, length);
}

bool can_reserve(const Runtime& runtime, const std::vector<std::pair<SequenceId, std::int32_t>>& appends) {
  for (const auto& append : appends) checked(runtime.kv(), append.first);
  return runtime.can_reserve(appends);
}

bool can_write(const Runtime& runtime, const std::vector<std::pair<SequenceId, std::int32_t>>& appends) {
  for (const auto& append : appends) checked(runtime.kv(), append.first);
  return runtime.can_write(appends);
}

KVSpill make_spill(std::int64_t memory_bytes, std::int64_t ring_bytes, std::string folder, std::int32_t depth,
                   std::int64_t chunk_bytes, std::int64_t limit_bytes_per_s, const std::string& method,
                   const std::optional<Faults>& faults) {
  return {.memory_bytes = memory_bytes,
          .ring_bytes = ring_bytes,
          .folder = std::move(folder),
          .reader = reader_options(method, depth, chunk_bytes, limit_bytes_per_s, faults)};
}

py::dict kv_counters(const Runtime& runtime) {
  py::dict out;
  if (runtime.kv().stream() == nullptr) return out;
  const KVStreamCounters counters = runtime.kv().stream()->counters();
  out["num_reads"] = counters.reads.num_reads;
  out["read_bytes"] = counters.reads.num_bytes;
  out["written_bytes"] = runtime.kv().written_bytes();
  out["busy_s"] = counters.reads.busy_s;
  out["waited_s"] = counters.waited_s;
  return out;
}

}  // namespace

void init_runtime(py::module_& m) {
  const ReaderOptions defaults;
  py::class_<PySpan>(m, "Span", "Tokens to append to a sequence, and which of their logits are wanted.")
      .def(py::init<SequenceId, Array<std::int32_t>, const std::string&, std::optional<Array<std::int32_t>>,
                    std::optional<Array<std::uint8_t>>, const std::vector<std::pair<std::int32_t, std::int32_t>>&>(),
           py::arg("sequence"), py::arg("tokens").noconvert(), py::arg("logits") = "last",
           py::arg("positions") = py::none(), py::arg("tree_mask") = py::none(),
           py::arg("segments") = std::vector<std::pair<std::int32_t, std::int32_t>>{});
  py::class_<KVSpill>(m, "KVSpill", "How much of the KV pages stays in memory, and where the others go.")
      .def(py::init(&make_spill), py::kw_only(), py::arg("memory_bytes"), py::arg("ring_bytes"), py::arg("folder"),
           py::arg("depth") = defaults.depth, py::arg("chunk_bytes") = defaults.chunk_bytes,
           py::arg("limit_bytes_per_s") = 0, py::arg("method") = "auto", py::arg("faults") = py::none(),
           "memory_bytes: of pages; ring_bytes: besides, of what is read from disk. folder: of the file. Depth, chunk "
           "and "
           "limit: of the reads. faults: of the disk, for tests.");
  py::class_<Runtime>(m, "Runtime", "Runs steps of a model; one caller at a time.")
      .def(py::init(&make_runtime), py::arg("graph"), py::arg("store"), py::kw_only(), py::arg("isa"),
           py::arg("threads"), py::arg("batch_tokens"), py::arg("round_tokens") = 0, py::arg("context"),
           py::arg("kv_format"), py::arg("kv_budget_bytes"), py::arg("kv_spill") = py::none(), py::arg("kernel") = "",
           py::arg("known_kernels") = std::vector<KernelChoice>{}, py::arg("timing_budget_s") = 0.0,
           "kernel: a name of kernel_names, taken wherever it can be. known_kernels: (format, rows, cols, most tokens, "
           "kernel) of earlier runs; what is missing is timed, up to timing_budget_s. round_tokens: of batch_tokens so "
           "many "
           "are computed at a time where weights are streamed; 0: all. kv_spill: where pages go that memory does not "
           "hold; None: all "
           "stay in memory.")
      .def("step", &step, py::arg("spans"),
           "Appends the spans and returns float32 logits [rows, vocab], valid until the next step.")
      .def("stop", &Runtime::stop, py::call_guard<py::gil_scoped_release>(),
           "From any thread: ends the step that runs with a StoppedError, if its weights are streamed.")
      .def(
          "stream_counters", [](const Runtime& r) { return stream_counters(r.store()); },
          "What was read while steps ran, in all; empty where nothing is streamed.")
      .def("start_profile", &Runtime::start_profile, "From now on steps are timed.")
      .def("stop_profile", &stop_profile,
           "num_runs, starting_s, and steps: (kind, weight, format, rows, cols, working_s, waiting_s) in plan order; "
           "seconds of thread 0 since start_profile.")
      .def("start_trace", &Runtime::start_trace, "From now on steps, reads and waits are kept with their times.")
      .def(
          "stop_trace", &stop_trace,
          "steps: (kind, its first weight) in plan order. Columns: step_index, step_phase (0 starting, 1 working, 2 "
          "waiting for other threads), step_begin_s, step_end_s; wait_weight, wait_begin_s, wait_end_s; read_weight, "
          "read_first_strip, read_num_strips (0: a row or an expert), read_num_bytes, read_priority (0 demand, 1 "
          "planned, 2 predicted), read_begin_s, read_end_s. names: of weights, by their number. max_events: of a kind, "
          "after which a trace ends.")
      .def("start_routing_trace", &Runtime::start_routing_trace, "From now on what the routers choose is kept.")
      .def("stop_routing_trace", &stop_routing_trace,
           "For each mixture-of-experts layer: experts int16 and weights float32 [tokens, top_k], and gate_logits "
           "float32 "
           "[tokens, num_experts], its router on the input of the layer before it, or None. Layers behind the last "
           "attention see only the tokens whose logits are asked for.")
      .def("start_neuron_counts", &Runtime::start_neuron_counts,
           "From now on it is counted how many tokens activate each neuron.")
      .def("stop_neuron_counts", &stop_neuron_counts,
           "For each matrix that lies neuron by neuron: the tokens it was multiplied with, and for each of its columns "
           "how many of these activated it, uint32.")
      .def("open_sequence", [](Runtime& r) { return r.kv().open(); })
      .def(
          "fork", [](Runtime& r, SequenceId s) { return r.kv().fork(checked(r.kv(), s)); }, py::arg("sequence"))
      .def("rewind", &rewind, py::arg("sequence"), py::arg("length"))
      .def(
          "release", [](Runtime& r, SequenceId s) { r.kv().release(checked(r.kv(), s)); }, py::arg("sequence"))
      .def(
          "length", [](const Runtime& r, SequenceId s) { return r.kv().length(checked(r.kv(), s)); },
          py::arg("sequence"))
      .def("can_reserve", &can_reserve, py::arg("appends"), "appends: (sequence, number of tokens).")
      .def("can_write", &can_write, py::arg("appends"), "Whether memory holds the pages that one step writes for them.")
      .def(
          "kv_counters", &kv_counters,
          "Of keys and values on disk, in all: num_reads, read_bytes, written_bytes, busy_s, waited_s; empty where all "
          "stay in memory. From any thread.")
      .def_property_readonly("kv_memory_bytes", [](const Runtime& r) { return r.kv().memory_bytes(); })
      .def_property_readonly("kv_disk_bytes", [](const Runtime& r) { return r.kv().disk_bytes(); })
      .def_property_readonly("kv_bytes", [](const Runtime& r) { return r.kv().used_bytes(); })
      .def_property_readonly("kv_page_bytes", [](const Runtime& r) { return r.kv().page_bytes(); })
      .def_property_readonly("activation_bytes", &Runtime::activation_bytes)
      .def_property_readonly("kernels", &kernels,
                             "What was chosen: (an element for known_kernels, seconds by candidate if timed now).")
      .def_property_readonly("vocab_size", &Runtime::vocab_size)
      .def_property_readonly("batch_tokens", &Runtime::batch_tokens);
}

}  // namespace edgert
