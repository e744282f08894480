#include "sample/sampler.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <map>
#include <stdexcept>
#include <string>

#include "bindings/bindings.h"
#include "sample/philox.h"

namespace py = pybind11;

namespace edgert {
namespace {

Sampler make_sampler(double temperature, std::int32_t top_k, double top_p, double min_p, double typical_p,
                     double repetition_penalty, double presence_penalty, double frequency_penalty,
                     std::int32_t penalty_last_n, const std::map<std::int32_t, float>& logit_bias, std::uint64_t seed,
                     std::uint32_t index, std::int32_t num_logprobs, const std::string& isa) {
  const KernelTable* kernels = kernel_table(isa.c_str());
  if (kernels == nullptr)
    throw std::invalid_argument("instruction set: found '" + isa + "', expected a supported level");
  return Sampler({.temperature = temperature,
                  .top_k = top_k,
                  .top_p = top_p,
                  .min_p = min_p,
                  .typical_p = typical_p,
                  .repetition_penalty = repetition_penalty,
                  .presence_penalty = presence_penalty,
                  .frequency_penalty = frequency_penalty,
                  .penalty_last_n = penalty_last_n,
                  .logit_bias = {logit_bias.begin(), logit_bias.end()},
                  .seed = seed,
                  .index = index,
                  .num_logprobs = num_logprobs},
                 *kernels);
}

SampleResult sample(Sampler& sampler, const py::array_t<float>& logits, std::uint64_t position,
                    const py::array_t<std::int32_t, py::array::c_style>& history) {
  if (logits.ndim() != 1 || logits.size() == 0 || logits.strides(0) != static_cast<py::ssize_t>(sizeof(float)))
    throw std::invalid_argument("logits: expected one contiguous row");
  return sampler.sample({logits.data(), static_cast<std::size_t>(logits.size())}, position,
                        {history.data(), static_cast<std::size_t>(history.size())});
}

}  // namespace

void init_sampler(py::module_& m) {
  m.def("philox4x32_10", &philox4x32_10, py::arg("counter"), py::arg("key"), "Random words (Salmon et al. 2011).");
  m.def("uniform", &uniform, py::arg("seed"), py::arg("index"), py::arg("position"), "The sampler's number in [0, 1).");
  py::class_<SampleResult>(m, "SampleResult")
      .def_readonly("token", &SampleResult::token)
      .def_readonly("logprob", &SampleResult::logprob)
      .def_readonly("top", &SampleResult::top);
  py::class_<Sampler>(m, "Sampler", "Chooses the next token from one row of logits.")
      .def(py::init(&make_sampler), py::kw_only(), py::arg("temperature"), py::arg("top_k") = 0, py::arg("top_p") = 1.0,
           py::arg("min_p") = 0.0, py::arg("typical_p") = 1.0, py::arg("repetition_penalty") = 1.0,
           py::arg("presence_penalty") = 0.0, py::arg("frequency_penalty") = 0.0, py::arg("penalty_last_n") = 64,
           py::arg("logit_bias") = std::map<std::int32_t, float>{}, py::arg("seed") = 0, py::arg("index") = 0,
           py::arg("num_logprobs") = -1, py::arg("isa"))
      .def("sample", &sample, py::arg("logits").noconvert(), py::arg("position"), py::arg("history").noconvert());
}

}  // namespace edgert
