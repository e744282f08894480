#include <stdexcept>
#include <system_error>

#include "bindings/bindings.h"
#include "graph/runtime.h"

namespace py = pybind11;

namespace edgert {

// C++ exceptions are translated here and nowhere else.
void init_errors(py::module_& m) {
  static py::handle core_error, capacity_error, non_finite_error, stopped_error;
  core_error = py::exception<std::runtime_error>(m, "CoreError", PyExc_RuntimeError).release();
  capacity_error = py::exception<std::length_error>(m, "CapacityError", core_error).release();
  non_finite_error = py::exception<std::domain_error>(m, "NonFiniteError", core_error).release();
  stopped_error = py::exception<Stopped>(m, "StoppedError", core_error).release();
  py::register_exception_translator([](std::exception_ptr p) {
    try {
      if (p) std::rethrow_exception(p);
    } catch (const std::system_error& e) {
      const py::tuple args = py::make_tuple(e.code().value(), e.what());
      PyErr_SetObject(PyExc_OSError, args.ptr());
    } catch (const Stopped& e) {
      // A signal's handler may have raised what the caller shall see.
      if (PyErr_Occurred() == nullptr) PyErr_SetString(stopped_error.ptr(), e.what());
    } catch (const std::length_error& e) {
      PyErr_SetString(capacity_error.ptr(), e.what());
    } catch (const std::domain_error& e) {
      PyErr_SetString(non_finite_error.ptr(), e.what());
    } catch (const std::invalid_argument& e) {
      PyErr_SetString(core_error.ptr(), e.what());
    } catch (const std::out_of_range& e) {
      PyErr_SetString(core_error.ptr(), e.what());
    } catch (const ReadError& e) {
      if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_OSError, e.what());
    }
  });
}

}  // namespace edgert

PYBIND11_MODULE(_core, m) {
  m.doc() = "The C++ core of edgert.";
  edgert::init_errors(m);
  edgert::init_cpu(m);
  edgert::init_kernels(m);
  edgert::init_reader(m);
  edgert::init_weights(m);
  edgert::init_runtime(m);
  edgert::init_sampler(m);
  edgert::init_experts(m);
}
