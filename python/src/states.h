// states.h: objects as plain values: their JSON, and what they are pickled as.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>
#include <utility>

#include "failure.h"

namespace tessera::python {

namespace nb = nanobind;

// Arrays become lists.
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

// Pickles and copies a class by a dict of plain values: `to(handle)` makes it,
// `from(dict)` an object of it, or refuses what is none.
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

// The same dict as text.
template <class C, class To>
void bind_json(nb::class_<C>& of, To to) {
  of.def(
      "json", [to](nb::handle self) { return json_of(to(self)); },
      "Its values as JSON.");
}
template <class C, class From>
void bind_from_json(nb::class_<C>& of, From from) {
  of.def_static(
      "from_json",
      [from](const std::string& text) { return from(dict_of_json(text)); },
      nb::arg("text"), "Of what `json` gave; anything else is refused.");
}

// Of what holds a device, threads or arrays that a call needs: `instead` says
// what can be kept.
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
