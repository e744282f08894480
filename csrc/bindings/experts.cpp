#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "weights/expert_simulator.h"

namespace py = pybind11;

namespace edgert {
namespace {

template <typename T>
using Array = py::array_t<T, py::array::c_style>;
using Refs = std::vector<std::pair<std::int32_t, std::int32_t>>;
// Experts and weights of a recorded routing, [tokens][layers][top_k].
using Routing = std::pair<Array<std::int16_t>, Array<float>>;

template <typename T>
std::span<const T> flat(const Array<T>& array) {
  return {array.data(), static_cast<std::size_t>(array.size())};
}

RoutingView view(const Array<std::int16_t>& experts, const Array<float>& weights) {
  bool fits = experts.ndim() == 3 && weights.ndim() == 3;
  for (int i = 0; fits && i < 3; ++i) fits = experts.shape(i) == weights.shape(i);
  if (!fits) throw std::invalid_argument("routing: expected experts and weights of shape [tokens, layers, top_k]");
  return {.num_tokens = static_cast<std::int32_t>(experts.shape(0)),
          .num_layers = static_cast<std::int32_t>(experts.shape(1)),
          .top_k = static_cast<std::int32_t>(experts.shape(2)),
          .experts = flat(experts),
          .weights = flat(weights)};
}

// Checked against the shape: policies and predictors index with what it holds.
RoutingView view(const std::optional<Routing>& routing, const ExpertShape& shape) {
  if (!routing) return {};
  const RoutingView checked = view(routing->first, routing->second);
  bool fits = checked.num_layers == shape.num_layers;
  for (const std::int16_t expert : checked.experts) fits = fits && expert >= 0 && expert < shape.num_experts;
  if (!fits) throw std::invalid_argument("routing: found layers or experts that the model does not have");
  return checked;
}

std::unique_ptr<ExpertCache> make_cache(const Array<std::int64_t>& expert_bytes, std::int64_t capacity_bytes,
                                        std::int32_t top_k, const std::string& policy, const std::string& predictor,
                                        std::int32_t over_fetch, std::int64_t prefetch_bytes, float min_probability,
                                        float victim_share, const std::optional<Routing>& profile,
                                        const std::optional<Routing>& future) {
  if (expert_bytes.ndim() != 2) throw std::invalid_argument("expert_bytes: expected shape [layers, experts]");
  const ExpertShape shape{.num_layers = static_cast<std::int32_t>(expert_bytes.shape(0)),
                          .num_experts = static_cast<std::int32_t>(expert_bytes.shape(1))};
  const PolicyInputs policy_inputs{.shape = shape, .profile = view(profile, shape), .future = view(future, shape)};
  const PredictorInputs predictor_inputs{.shape = shape, .top_k = top_k, .profile = view(profile, shape)};
  const std::span<const std::int64_t> sizes = flat(expert_bytes);
  ExpertCacheOptions options{.shape = shape,
                             .top_k = top_k,
                             .expert_bytes = {sizes.begin(), sizes.end()},
                             .capacity_bytes = capacity_bytes,
                             .over_fetch = over_fetch,
                             .min_probability = min_probability,
                             .victim_share = victim_share,
                             .prefetch_bytes = prefetch_bytes};
  return std::make_unique<ExpertCache>(std::move(options), make_policy(policy, policy_inputs),
                                       make_predictor(predictor, predictor_inputs));
}

Refs refs(std::span<const ExpertRef> experts) {
  Refs out;
  for (const ExpertRef& expert : experts) out.emplace_back(expert.layer, expert.expert);
  return out;
}

py::dict plain(const CacheDecision& decision) {
  py::dict out;
  out["evict"] = refs(decision.evict);
  out["cancel"] = refs(decision.cancel);
  out["load"] = refs(decision.load);
  out["num_deferred"] = decision.num_deferred;
  return out;
}

void check_layer(const ExpertCache& cache, std::int32_t layer) {
  if (layer < 0 || layer >= cache.shape().num_layers) throw std::invalid_argument("layer: found none of the cache");
}

void check_expert(const ExpertCache& cache, std::int32_t layer, std::int32_t expert) {
  check_layer(cache, layer);
  if (expert < 0 || expert >= cache.shape().num_experts) throw std::invalid_argument("expert: found none of the cache");
}

py::dict route(ExpertCache& cache, std::int32_t layer, const std::vector<std::int32_t>& experts,
               const std::vector<float>& weights) {
  if (experts.size() != weights.size()) throw std::invalid_argument("route: expected a weight for each expert");
  for (std::size_t i = 0; i < experts.size(); ++i) {
    check_expert(cache, layer, experts[i]);
    if (i > 0 && experts[i] <= experts[i - 1]) throw std::invalid_argument("route: expected ascending experts");
  }
  py::dict out = plain(cache.route(layer, experts, weights));
  std::vector<std::string> found;
  for (const ExpertCache::Found one : cache.found())
    found.emplace_back(one == ExpertCache::Found::hit ? "hit" : one == ExpertCache::Found::late ? "late" : "miss");
  out["found"] = found;
  return out;
}

py::dict prefetch(ExpertCache& cache, std::int32_t layer, const std::optional<Array<float>>& gate_logits,
                  const std::vector<std::int32_t>& known_experts) {
  check_layer(cache, layer);
  for (const std::int32_t expert : known_experts) check_expert(cache, layer, expert);
  PredictionHints hints{.known_experts = known_experts};
  if (gate_logits) {
    if (gate_logits->size() % cache.shape().num_experts != 0)
      throw std::invalid_argument("gate_logits: expected one for each expert");
    hints.gate_logits = flat(*gate_logits);
  }
  return plain(cache.prefetch(layer, hints));
}

std::string state(const ExpertCache& cache, std::int32_t layer, std::int32_t expert) {
  check_expert(cache, layer, expert);
  const ExpertState s = cache.state(layer, expert);
  return s == ExpertState::resident ? "resident" : s == ExpertState::in_flight ? "in_flight" : "on_disk";
}

std::vector<std::map<std::string, std::int64_t>> counters(const ExpertCache& cache) {
  std::vector<std::map<std::string, std::int64_t>> layers;
  for (const ExpertCounters& c : cache.counters()) {
    layers.push_back({{"routed", c.routed},
                      {"hits", c.hits},
                      {"late_hits", c.late_hits},
                      {"misses", c.misses},
                      {"loads", c.loads},
                      {"prefetch_loads", c.prefetch_loads},
                      {"cancelled", c.cancelled},
                      {"wasted", c.wasted},
                      {"load_bytes", c.load_bytes},
                      {"prefetch_bytes", c.prefetch_bytes},
                      {"cancelled_bytes", c.cancelled_bytes},
                      {"wasted_bytes", c.wasted_bytes},
                      {"predicted_routed", c.predicted_routed},
                      {"recalled_top_k", c.recalled_top_k},
                      {"recalled", c.recalled}});
  }
  return layers;
}

template <void (ExpertCache::*change)(std::int32_t, std::int32_t)>
void change_expert(ExpertCache& cache, std::int32_t layer, std::int32_t expert) {
  check_expert(cache, layer, expert);
  (cache.*change)(layer, expert);
}

py::dict simulate(ExpertCache& cache, const Array<std::int16_t>& experts, const Array<float>& weights,
                  const std::optional<Array<std::int32_t>>& token_ids, const std::optional<Array<float>>& gate_logits,
                  double disk_bytes_per_s, double latency_s, double layer_s, double before_router, double token_s,
                  std::size_t num_fills) {
  const RoutingView routing = view(experts, weights);
  const std::int64_t num_logits = std::int64_t{routing.num_tokens} * cache.shape().num_slots();
  if (gate_logits && gate_logits->size() != num_logits)
    throw std::invalid_argument("gate_logits: expected shape [tokens, layers, experts]");
  if (token_ids && token_ids->size() != routing.num_tokens)
    throw std::invalid_argument("token_ids: expected one for each token of the routing");
  ExpertSimulator simulator(cache, {.disk_bytes_per_s = disk_bytes_per_s,
                                    .latency_s = latency_s,
                                    .layer_s = layer_s,
                                    .before_router = before_router,
                                    .token_s = token_s,
                                    .num_fills = num_fills});
  {
    const py::gil_scoped_release release;
    simulator.run(routing, token_ids ? flat(*token_ids) : std::span<const std::int32_t>(),
                  gate_logits ? flat(*gate_logits) : std::span<const float>());
  }
  const SimulatorResult& result = simulator.result();
  py::dict out;
  out["num_tokens"] = result.num_tokens;
  out["elapsed_s"] = result.elapsed_s;
  out["compute_s"] = result.compute_s;
  out["stall_s"] = result.stall_s;
  out["disk_s"] = result.disk_s;
  out["layer_stall_s"] = result.layer_stall_s;
  return out;
}

}  // namespace

void init_experts(py::module_& m) {
  m.def("policy_names", &policy_names, "Eviction policies of ExpertCache.");
  m.def("predictor_names", &predictor_names, "Predictors of ExpertCache.");
  m.attr("DEFAULT_POLICY") = kDefaultPolicy;
  m.attr("DEFAULT_PREDICTOR") = kDefaultPredictor;
  py::class_<ExpertCache>(m, "ExpertCache", "Decides which experts are in memory; reads nothing itself.")
      .def(py::init(&make_cache), py::arg("expert_bytes").noconvert(), py::arg("capacity_bytes"), py::kw_only(),
           py::arg("top_k"), py::arg("policy"), py::arg("predictor") = "none", py::arg("over_fetch") = 4,
           py::arg("prefetch_bytes") = 0, py::arg("min_probability") = 0.2f, py::arg("victim_share") = 0.25f,
           py::arg("profile") = py::none(), py::arg("future") = py::none(),
           "expert_bytes: int64 [layers, experts]. profile, future: (experts int16, weights float32), both [tokens, "
           "layers, top_k]: another text's routing for hotset and table, the coming one for belady.")
      .def(
          "begin_step", [](ExpertCache& cache, const std::vector<std::int32_t>& tokens) { cache.begin_step(tokens); },
          py::arg("tokens"), "The tokens of the step that begins.")
      .def("route", &route, py::arg("layer"), py::arg("experts"), py::arg("weights"),
           "What the router chose: evict, cancel, load, num_deferred, and found (hit, late or miss) for each.")
      .def("admit", [](ExpertCache& cache) { return plain(cache.admit()); })
      .def("release", &change_expert<&ExpertCache::release>, py::arg("layer"), py::arg("expert"))
      .def("prefetch", &prefetch, py::arg("layer"), py::arg("gate_logits") = py::none(),
           py::arg("known_experts") = std::vector<std::int32_t>{})
      .def(
          "fill",
          [](ExpertCache& cache, std::int32_t layer) {
            check_layer(cache, layer);
            return plain(cache.fill(layer));
          },
          py::arg("layer"), "What an idle disk reads into memory that is free; nothing with prefetch_bytes=0.")
      .def("arrived", &change_expert<&ExpertCache::arrived>, py::arg("layer"), py::arg("expert"))
      .def("failed", &change_expert<&ExpertCache::failed>, py::arg("layer"), py::arg("expert"))
      .def("cancelled", &change_expert<&ExpertCache::cancelled>, py::arg("layer"), py::arg("expert"))
      .def("state", &state, py::arg("layer"), py::arg("expert"), "on_disk, in_flight or resident.")
      .def("simulate", &simulate, py::arg("experts").noconvert(), py::arg("weights").noconvert(),
           py::arg("token_ids").noconvert() = py::none(), py::arg("gate_logits").noconvert() = py::none(),
           py::kw_only(), py::arg("disk_bytes_per_s"), py::arg("latency_s") = 0.0, py::arg("layer_s"),
           py::arg("before_router") = 0.5, py::arg("token_s") = 0.0, py::arg("num_fills") = 0,
           "Runs a recorded routing through this cache with an imagined clock and disk; returns the time line.")
      .def_property_readonly("used_bytes", &ExpertCache::used_bytes)
      .def_property_readonly("counters", &counters, "A dict of counts for each layer.");
}

}  // namespace edgert
