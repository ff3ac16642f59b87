#include "failure.h"

#include <nanobind/stl/string.h>

namespace tessera::python {
namespace {

PyObject* tessera_error = nullptr;

const char* name_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid:
      return "invalid";
    case ErrorKind::limit:
      return "limit";
    case ErrorKind::io:
      return "io";
    case ErrorKind::unavailable:
      return "unavailable";
    case ErrorKind::stopped:
      return "stopped";
  }
  return "invalid";
}

void translate(const std::exception_ptr& p, void*) {
  try {
    std::rethrow_exception(p);
  } catch (const Failure& f) {
    nb::object e = nb::handle(tessera_error)(f.error.message);
    e.attr("kind") = name_of(f.error.kind);
    e.attr("column") = f.error.column;
    PyErr_SetObject(tessera_error, e.ptr());
  }
}

}  // namespace

void bind_failure(nb::module_& m) {
  tessera_error = PyErr_NewExceptionWithDoc(
      "tessera.TesseraError",
      "An error of the library. Its message is one line: `[where] rule,\n"
      "found X for Y`.\n\n"
      "`kind` is 'invalid', 'limit', 'io', 'unavailable' or 'stopped'.\n"
      "`column` is the position in a mask's text, from 1, or 0 if there\n"
      "is none.",
      PyExc_ValueError, nullptr);
  if (tessera_error == nullptr) throw nb::python_error();
  m.attr("TesseraError") = nb::handle(tessera_error);
  nb::register_exception_translator(translate);
}

}  // namespace tessera::python
