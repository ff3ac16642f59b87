#include "mask.h"

#include <nanobind/operators.h>
#include <nanobind/stl/string.h>

#include "failure.h"
#include "repr.h"
#include "states.h"

namespace tessera::python {
namespace {

Mask read_mask(nb::handle object) {
  if (nb::isinstance<PyMask>(object)) {
    return nb::cast<const PyMask&>(object).mask();
  }
  std::string text;
  if (!nb::try_cast(object, text, false)) {
    refuse("mask must be a mask, its text or a list of them, found " +
           nb::cast<std::string>(object.type().attr("__name__")));
  }
  return take(parse_mask(text));
}

}  // namespace

const Mask& PyMask::mask() const {
  if (!made_) made_ = take(make_mask(expr));
  return *made_;
}

std::vector<Mask> read_masks(nb::handle object) {
  std::vector<Mask> out;
  if (nb::isinstance<nb::list>(object) || nb::isinstance<nb::tuple>(object)) {
    for (nb::handle item : nb::borrow<nb::sequence>(object)) {
      out.push_back(read_mask(item));
    }
  } else {
    out.push_back(read_mask(object));
  }
  return out;
}

namespace {

nb::dict values_of(nb::handle self) {
  const auto& e = nb::cast<const PyMask&>(self);
  nb::dict out;
  out["text"] = to_string(e.expr);
  out["canonical"] = to_string(e.mask());
  return out;
}

void bind_atoms(nb::module_& m) {
  m.attr("full") = PyMask{full()};
  m.attr("causal") = PyMask{causal()};
  m.attr("prefix") = PyMask{prefix()};
  m.attr("documents") = PyMask{documents()};
  m.attr("segments") = PyMask{segments()};
  m.attr("tree") = PyMask{tree()};
  m.def(
      "same",
      [](const std::string& name) {
        if (name.size() == 1) {
          if (auto mask = make_mask(same(name[0]))) return PyMask{mask->expr};
        }
        refuse("same takes a letter from a to h, found '" + name + "'");
      },
      nb::arg("name"),
      "Mask of the keys in the query's own group. `name` is a letter, a\n"
      "to h; `plan(same={name: ids})` has the ids. A token with a\n"
      "negative id is in no group.");
  m.def(
      "window",
      [](int64_t left, int64_t right) { return PyMask{window(left, right)}; },
      nb::arg("left"), nb::arg("right"),
      "Mask of the keys at most `left` before the query and at most\n"
      "`right` after it; -1: no limit.");
  m.def(
      "chunk", [](int64_t n) { return PyMask{chunk(n)}; }, nb::arg("n"),
      "Mask of the keys in the query's own chunk of n keys.");
  m.def(
      "sink", [](int64_t n) { return PyMask{sink(n)}; }, nb::arg("n"),
      "Mask of the first n keys: of the query's document or segment if\n"
      "the mask names documents or segments, else of the batch row.");
  m.def(
      "blocks", [](int64_t n) { return PyMask{blocks(n)}; }, nb::arg("n"),
      "Mask of the keys in the blocks that each query picks; a block is\n"
      "n keys. The picks are facts: see `plan`.");
  m.def(
      "routed",
      [](int64_t top, int64_t block) { return PyMask{routed(top, block)}; },
      nb::arg("top"), nb::arg("block"),
      "Mask of the keys in the blocks that the router picks for each\n"
      "query: `top` blocks of `block` keys. `route` runs the router.");
}

}  // namespace

void bind_mask(nb::module_& m) {
  nb::class_<PyMask> mask(
      m, "Mask",
      "A static rule that says which keys a query may see. Build it\n"
      "with `&`, `|` and `~`, or from its text. A mask holds no data of\n"
      "a batch; those are facts.");
  mask.def(
          "__init__",
          [](PyMask* self, const std::string& text) {
            new (self) PyMask{take(parse_expr(text))};
          },
          nb::arg("text"))
      .def(
          "__and__",
          [](const PyMask& l, const PyMask& r) {
            return PyMask{l.expr & r.expr};
          },
          nb::is_operator())
      .def(
          "__or__",
          [](const PyMask& l, const PyMask& r) {
            return PyMask{l.expr | r.expr};
          },
          nb::is_operator())
      .def("__invert__", [](const PyMask& e) { return PyMask{!e.expr}; })
      .def(
          "__bool__",
          [](const PyMask&) -> bool {
            refuse(
                "masks must be joined by &, | and ~, found one that is asked "
                "whether it is true, as by and, or, not and if");
          },
          "Raises a TesseraError, since `and`, `or` and `not` would\n"
          "silently drop a mask.")
      .def(
          "__eq__",
          [](const PyMask& l, const PyMask& r) { return l.mask() == r.mask(); },
          nb::is_operator(), nb::sig(kEqual),
          "Whether both masks have the same canonical form and name the same "
          "facts.")
      .def("__hash__",
           [](const PyMask& e) {
             return nb::hash(nb::str(to_string(e.mask()).c_str()));
           })
      .def("__str__", [](const PyMask& e) { return to_string(e.expr); })
      .def("__repr__",
           [](const PyMask& e) {
             return one_line("Mask('", to_string(e.expr), "')");
           })
      .def("__reduce__",
           [](nb::handle self) {
             return nb::make_tuple(self.type(), nb::make_tuple(nb::str(self)));
           })
      .def_prop_ro(
          "canonical", [](const PyMask& e) { return to_string(e.mask()); },
          "The text of the mask in canonical form.");
  bind_json(mask, &values_of);
  bind_atoms(m);
}

}  // namespace tessera::python
