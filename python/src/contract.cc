#include "contract.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/digest.h"
#include "repr.h"
#include "states.h"
#include "tessera/batch.h"

namespace tessera::python {
namespace {

nb::dict contract_state(nb::handle self) {
  const auto& c = nb::cast<const PlanContract&>(self);
  nb::dict out;
  out["key"] = c.key;
  out["text"] = c.text;
  out["steps"] = c.steps;
  out["union_blocks"] = c.union_blocks;
  out["window_bounds"] = c.window_bounds;
  out["unused_facts"] = c.unused_facts;
  out["folded"] = c.folded;
  return out;
}

PlanContract contract_of_state(const nb::dict& state) {
  PlanContract c;
  c.key = read_state<std::string>(state, "key");
  c.text = read_state<std::string>(state, "text");
  c.steps = read_state<int64_t>(state, "steps");
  c.union_blocks = read_state<int64_t>(state, "union_blocks");
  c.window_bounds = read_state<std::vector<int64_t>>(state, "window_bounds");
  c.unused_facts = read_state<std::vector<std::string>>(state, "unused_facts");
  c.folded = read_state<std::vector<std::string>>(state, "folded");
  if (const std::string of = digest_of(c.text); of != c.key) {
    refuse("a contract's key must be that of its text, found " + c.key +
           " for " + of);
  }
  // Values that are also in the text must equal those of the text.
  const nb::dict text = dict_of_json(c.text);
  if (read_state<int64_t>(text, "steps") != c.steps) {
    refuse("a contract's steps must be those of its text, found " +
           std::to_string(c.steps));
  }
  const int64_t blocks =
      text.contains("picks")
          ? read_state<int64_t>(read_state<nb::dict>(text, "picks"), "union")
          : 0;
  if (blocks != c.union_blocks) {
    refuse("a contract's union_blocks must be those of its text, found " +
           std::to_string(c.union_blocks));
  }
  return c;
}

}  // namespace

void bind_contract(nb::module_& m) {
  nb::class_<PlanContract> contract(
      m, "Contract",
      "The plan contract: everything static that a compiled program of\n"
      "a batch depends on. `key` is its cache key.");
  contract
      .def_ro("key", &PlanContract::key,
              "Digest of `text`: 32 hex digits, the same on every machine.")
      .def_ro("text", &PlanContract::text,
              "The terms of the contract, as canonical JSON text.")
      .def_ro(
          "steps", &PlanContract::steps,
          "The most steps that a packed worklist of either direction may have.")
      .def_ro("union_blocks", &PlanContract::union_blocks,
              "The most blocks that the queries of a tile row may pick\n"
              "together; 0 if no mask names picks.")
      .def_ro("window_bounds", &PlanContract::window_bounds,
              "The exact window bounds. The key does not depend on them.")
      .def_ro("unused_facts", &PlanContract::unused_facts,
              "Names of the facts that were given but that no mask names.")
      .def_ro(
          "folded", &PlanContract::folded,
          "One line for each value that was folded: replaced by its class,\n"
          "its bucket or a ceiling, or left out.")
      .def(
          "__eq__",
          [](const PlanContract& l, const PlanContract& r) {
            return l.key == r.key;
          },
          nb::is_operator(), nb::sig(kEqual))
      .def("__hash__",
           [](const PlanContract& c) {
             return nb::hash(nb::str(c.key.c_str()));
           })
      .def("__repr__", [](const PlanContract& c) {
        return "Contract('" + c.key + "', steps=" + std::to_string(c.steps) +
               ")";
      });
  bind_json(contract, &contract_state);
  bind_from_json(contract, &contract_of_state);
  bind_pickle(contract, &contract_state, &contract_of_state);
}

}  // namespace tessera::python
