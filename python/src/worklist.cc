#include "worklist.h"

#include <nanobind/stl/string.h>

#include <string>
#include <utility>

#include "arrays.h"
#include "batch.h"
#include "block_mask.h"
#include "states.h"
#include "unlocked.h"

namespace tessera::python {
namespace {

nb::dict worklist_values(nb::handle self) {
  const auto& w = nb::cast<const PyWorklist&>(self);
  nb::dict out;
  out["lists"] = w.list->lists;
  out["rows"] = w.list->rows;
  out["columns"] = w.list->columns;
  for (const char* const name : {"row_start", "column", "tile_class"}) {
    out[name] = self.attr(name);
  }
  return out;
}

nb::dict worklist_state(nb::handle self) {
  const auto& w = nb::cast<const PyWorklist&>(self);
  nb::dict out;
  out["of"] = w.owner;
  out["transposed"] = w.transposed;
  return out;
}

PyWorklist worklist_of_state(const nb::dict& state) {
  const auto of = read_state<nb::object>(state, "of");
  const bool transposed = read_state<bool>(state, "transposed");
  if (nb::isinstance<PyBatch>(of)) return worklist_of(of, transposed);
  return worklist_of_blocks(of, transposed);
}

}  // namespace

const Columns& PyWorklist::columns() const {
  if (*kept) return **kept;
  Columns made = unlocked_if_long(list->entries.size(), [&] {
    Columns out;
    out.column.reserve(list->entries.size());
    out.tile_class.reserve(list->entries.size());
    for (const Entry e : list->entries) {
      out.column.push_back(static_cast<int32_t>(e.column()));
      out.tile_class.push_back(static_cast<uint8_t>(e.tile_class()));
    }
    return out;
  });
  // Another thread may have been first, and views of its columns exist.
  if (!*kept) *kept = std::move(made);
  return **kept;
}

PyWorklist worklist_of(nb::object owner, bool transposed) {
  auto& b = nb::cast<PyBatch&>(owner);
  const Plan& plan = b.batch.plan();
  return {std::move(owner), transposed ? &plan.transposed : &plan.forward,
          transposed ? &b.transposed : &b.forward, transposed};
}

void bind_worklist(nb::module_& m) {
  nb::class_<PyWorklist> worklist(
      m, "Worklist",
      "The active tiles of every row, ascending by column, as NumPy\n"
      "views.\n\n"
      "The tiles of row r of list l are [row_start[l * rows + r],\n"
      "row_start[l * rows + r + 1]) of `column` and `tile_class`. The\n"
      "class is 1 for a partial tile and 2 for a full one.");
  worklist
      .def_prop_ro(
          "lists", [](const PyWorklist& w) { return w.list->lists; },
          "Number of lists: one for each plan head of each batch row.")
      .def_prop_ro(
          "rows", [](const PyWorklist& w) { return w.list->rows; },
          "Number of tile rows of a list.")
      .def_prop_ro(
          "columns", [](const PyWorklist& w) { return w.list->columns; },
          "Number of tile columns of a list.")
      .def_prop_ro(
          "row_start",
          [](const PyWorklist& w) {
            return view_of<uint32_t>(w.list->row_start, w.owner);
          },
          "The start of each row in `column`: uint32 [lists * rows + 1].")
      .def_prop_ro(
          "column",
          [](const PyWorklist& w) {
            return view_of<int32_t>(w.columns().column, w.owner);
          },
          "The column of each active tile: int32 [tiles].")
      .def_prop_ro(
          "tile_class",
          [](const PyWorklist& w) {
            return view_of<uint8_t>(w.columns().tile_class, w.owner);
          },
          "The class of each active tile, 1 partial or 2 full: uint8 [tiles].")
      .def("__len__",
           [](const PyWorklist& w) { return w.list->entries.size(); })
      .def("__repr__", [](const PyWorklist& w) {
        const Worklist& l = *w.list;
        return "Worklist(lists=" + std::to_string(l.lists) +
               ", rows=" + std::to_string(l.rows) +
               ", columns=" + std::to_string(l.columns) +
               ", tiles=" + std::to_string(l.entries.size()) + ")";
      });
  bind_json(worklist, &worklist_values);
  bind_pickle(worklist, &worklist_state, &worklist_of_state);
}

}  // namespace tessera::python
