#include "choice.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <map>
#include <optional>
#include <string>

#include "failure.h"
#include "repr.h"
#include "states.h"
#include "tessera/dispatch.h"

namespace tessera::python {

namespace nb = nanobind;

namespace {

nb::dict choice_state(nb::handle self) {
  nb::dict out;
  for (const char* const name :
       {"lane", "reason", "rule", "request_class", "rejected"}) {
    out[name] = self.attr(name);
  }
  return out;
}

// The choice as plain values; no call runs from it.
Choice choice_of_state(const nb::dict& state) {
  Choice c;
  c.lane = take(parse_lane(read_state<std::string>(state, "lane")));
  c.reason = read_state<std::string>(state, "reason");
  if (const auto name = read_state<std::optional<std::string>>(state, "rule")) {
    for (const DispatchRule& rule : dispatch_rules()) {
      if (rule.name == *name) c.rule = &rule;
    }
    if (c.rule == nullptr) {
      refuse("a choice's rule must be one of this version, found '" + *name +
             "'");
    }
  }
  const auto of = read_state<std::string>(state, "request_class");
  bool known = false;
  for (const RequestClass one :
       {RequestClass::sparse_blocks, RequestClass::custom,
        RequestClass::plain_causal, RequestClass::other}) {
    if (to_string(one) != of) continue;
    c.request_class = one;
    known = true;
  }
  if (!known) {
    refuse("a choice's request_class must be one of this version, found '" +
           of + "'");
  }
  for (const auto& [lane, reason] :
       read_state<std::map<std::string, std::string>>(state, "rejected")) {
    c.rejected.push_back({take(parse_lane(lane)), reason});
  }
  return c;
}

}  // namespace

void bind_choice(nb::module_& m) {
  nb::class_<Choice> choice(
      m, "Choice", "The lane that runs a call, and why it was chosen.");
  choice
      .def_prop_ro(
          "lane",
          [](const Choice& c) { return std::string(to_string(c.lane)); },
          "The name of the lane.")
      .def_ro("reason", &Choice::reason, "Why this lane was chosen.")
      .def_prop_ro(
          "rule",
          [](const Choice& c) -> std::optional<std::string> {
            if (!c.rule) return {};
            return std::string(c.rule->name);
          },
          "The name of the row of dispatch thresholds that decided, or None\n"
          "if no row did.")
      .def_prop_ro(
          "request_class",
          [](const Choice& c) {
            return std::string(to_string(c.request_class));
          },
          "The class of request that this one belongs to.")
      .def_prop_ro(
          "rejected",
          [](const Choice& c) {
            std::map<std::string, std::string> out;
            for (const Rejected& r : c.rejected) {
              out[std::string(to_string(r.lane))] = r.reason;
            }
            return out;
          },
          "The reason against each other lane, by the lane's name.")
      .def("__repr__", [](const Choice& c) {
        return one_line(
            "Choice('" + std::string(to_string(c.lane)) + "': ", c.reason, ")");
      });
  bind_json(choice, &choice_state);
  bind_pickle(choice, &choice_state, &choice_of_state);
}

}  // namespace tessera::python
