// states.h: objects as dicts of plain values, for pickle and JSON.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>
#include <utility>

#include "failure.h"

namespace tessera::python {

namespace nb = nanobind;

// `plain` holds plain values and arrays, which become lists.
std::string json_of(nb::handle plain);
nb::dict dict_of_json(const std::string& text);

template <class T>
T read_state(const nb::dict& state, const char* key) {
  T out;
  if (!state.contains(key)) {
    refuse(std::string("a state must be as it was saved, found no '") + key +
           "'");
  }
  if (!nb::try_cast(nb::handle(state[key]), out)) {
    refuse(
        std::string("a state must be as it was saved, found ") +
        nb::cast<std::string>(nb::handle(state[key]).type().attr("__name__")) +
        " for '" + key + "'");
  }
  return out;
}

// Pickles and copies a class as a dict of plain values: `to(handle)` makes the
// dict, `from(dict)` makes an object or refuses the dict.
template <class C, class To, class From>
void bind_pickle(nb::class_<C>& of, To to, From from) {
  of.def("__getstate__", to)
      .def(
          "__setstate__",
          [from](nb::handle self, nb::handle state) {
            if (!nb::isinstance<nb::dict>(state)) {
              refuse("a state must be a dict, found " +
                     nb::cast<std::string>(state.type().attr("__name__")));
            }
            new (nb::inst_ptr<C>(self)) C(from(nb::borrow<nb::dict>(state)));
            nb::inst_mark_ready(self);
          },
          nb::arg("state").none());
}

// `json` and `from_json`: the same dict as text.
template <class C, class To>
void bind_json(nb::class_<C>& of, To to) {
  of.def(
      "json", [to](nb::handle self) { return json_of(to(self)); },
      "The values of this object as JSON text.");
}
template <class C, class From>
void bind_from_json(nb::class_<C>& of, From from) {
  of.def_static(
      "from_json",
      [from](const std::string& text) { return from(dict_of_json(text)); },
      nb::arg("text"),
      "Makes the object from the text that `json` returned. Raises a\n"
      "TesseraError for any other text.");
}

// For a class that holds a device, threads or arrays of a call. The error names
// in `instead` what can be pickled.
template <class C>
void refuse_pickle(nb::class_<C>& of, const char* instead) {
  of.def(
      "__reduce__",
      [instead](nb::handle self) {
        refuse("what is pickled must not belong to its process, found a " +
               nb::cast<std::string>(self.type().attr("__name__")) + " (" +
               instead + ")");
      },
      nb::sig("def __reduce__(self) -> str"));
}

}  // namespace tessera::python
