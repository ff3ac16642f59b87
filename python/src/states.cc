#include "states.h"

namespace tessera::python {

std::string json_of(nb::handle plain) {
  const nb::object lists =
      nb::cpp_function([](nb::handle array) { return array.attr("tolist")(); });
  return nb::cast<std::string>(nb::module_::import_("json").attr("dumps")(
      plain, nb::arg("default") = lists));
}

nb::dict dict_of_json(const std::string& text) {
  nb::object read;
  try {
    read = nb::module_::import_("json").attr("loads")(text);
  } catch (nb::python_error& e) {
    if (!e.matches(PyExc_ValueError) && !e.matches(PyExc_RecursionError)) throw;
    refuse("text must be JSON, found none that is");
  }
  if (!nb::isinstance<nb::dict>(read)) {
    refuse("JSON must be an object, found " +
           nb::cast<std::string>(read.type().attr("__name__")));
  }
  return nb::borrow<nb::dict>(read);
}

}  // namespace tessera::python
