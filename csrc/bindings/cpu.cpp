#include "base/cpu.h"

#include <pybind11/stl.h>

#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "base/bandwidth.h"
#include "base/memory.h"
#include "bindings/bindings.h"
#include "kernels/kernel_table.h"

namespace py = pybind11;

namespace edgert {
namespace {

std::vector<std::tuple<std::string, bool, bool>> isa_levels() {
  std::vector<std::tuple<std::string, bool, bool>> levels;
  for (int i = 0; i < num_isa_levels(); ++i) {
    const IsaLevel level = isa_level(i);
    levels.emplace_back(level.name, level.is_built, level.is_supported);
  }
  return levels;
}

py::dict kernels_in_use(const std::string& isa) {
  const KernelTable* table = kernel_table(isa.c_str());
  if (table == nullptr) throw std::invalid_argument("instruction set: found '" + isa + "', expected a supported level");
  py::dict out;
  for (int f = 0; f < kNumFormats; ++f) out[spec(static_cast<Format>(f)).name] = table->name;
  return out;
}

double bandwidth(int threads, std::size_t num_bytes, int repeats) {
  return read_bandwidth(kernel_table(best_isa_level())->read_memory, threads, num_bytes, repeats);
}

double multiply_add_peak(int threads, int repeats) {
  return fma_peak(kernel_table(best_isa_level())->multiply_add, threads, repeats);
}

}  // namespace

void init_cpu(py::module_& m) {
  m.def("isa_levels", &isa_levels, "(name, is_built, is_supported) of each level, ascending.");
  m.def("best_isa", [] { return std::string(best_isa_level()); }, "The highest level that this CPU supports.");
  m.def("cpu_name", &cpu_name);
  m.def("kernels_in_use", &kernels_in_use, py::arg("isa"), "Format name -> kernel table at a level.");
  m.def("read_bandwidth", &bandwidth, py::arg("threads"), py::arg("num_bytes") = std::size_t{1} << 30,
        py::arg("repeats") = 5, py::call_guard<py::gil_scoped_release>(), "Median memory read rate, bytes/s.");
  m.def("give_back_freed", &give_back_freed, "Gives back to the system what malloc holds of freed memory.");
  m.def("fma_peak", &multiply_add_peak, py::arg("threads"), py::arg("repeats") = 5,
        py::call_guard<py::gil_scoped_release>(), "Median rate of float32 multiply-adds in registers, 1/s.");
}

}  // namespace edgert
