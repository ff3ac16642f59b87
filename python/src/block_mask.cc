#include "block_mask.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "batch.h"
#include "failure.h"
#include "states.h"
#include "unlocked.h"

namespace tessera::python {
namespace {

struct PyBlockLists {
  BlockLists lists;
  std::optional<Columns> forward, transposed;
};

nb::object make(nb::object mask, std::optional<int64_t> columns,
                std::optional<int64_t> max_tiles,
                const std::optional<std::string>& isa) {
  const BlockMask cells = read_block_mask("mask", mask, columns);
  BlockOptions options;
  if (max_tiles) options.max_tiles = *max_tiles;
  if (isa) options.isa = take(parse_isa(*isa));
  PyBlockLists out;
  auto made =
      unlocked([&] { return worklists_of_blocks(cells, out.lists, options); });
  take(std::move(made));
  return nb::cast(std::move(out));
}

// The state has one bit for each block: every block in these lists is full.
nb::dict state_of(nb::handle self) {
  const Worklist& l = nb::cast<const PyBlockLists&>(self).lists.forward;
  const auto width = static_cast<size_t>((l.columns + 7) / 8);
  const auto rows = static_cast<size_t>(l.lists * l.rows);
  auto cells = unlocked_if_long(rows * width + l.entries.size(), [&] {
    std::vector<uint8_t> made(rows * width);
    for (size_t r = 0; r < rows; ++r) {
      for (uint32_t i = l.row_start[r]; i < l.row_start[r + 1]; ++i) {
        const auto c = static_cast<size_t>(l.entries[i].column());
        made[r * width + c / 8] |= static_cast<uint8_t>(1 << c % 8);
      }
    }
    return made;
  });
  nb::dict out;
  out["columns"] = l.columns;
  out["cells"] = own_array(
      std::move(cells),
      {static_cast<size_t>(l.lists), static_cast<size_t>(l.rows), width});
  return out;
}

PyBlockLists of_state(const nb::dict& state) {
  const nb::object cells = read_state<nb::object>(state, "cells");
  const BlockMask mask =
      read_block_mask("cells", cells, read_state<int64_t>(state, "columns"));
  PyBlockLists out;
  take(unlocked([&] { return worklists_of_blocks(mask, out.lists); }));
  return out;
}

nb::dict values_of(nb::handle self) {
  nb::dict out;
  for (const char* const name : {"forward", "transposed"}) {
    out[name] = nb::module_::import_("json").attr("loads")(
        self.attr(name).attr("json")());
  }
  return out;
}

}  // namespace

PyWorklist worklist_of_blocks(nb::object owner, bool transposed) {
  if (!nb::isinstance<PyBlockLists>(owner)) {
    refuse("a worklist must be of a Batch or of BlockLists, found one of " +
           nb::cast<std::string>(owner.type().attr("__name__")));
  }
  auto& b = nb::cast<PyBlockLists&>(owner);
  return {std::move(owner), transposed ? &b.lists.transposed : &b.lists.forward,
          transposed ? &b.transposed : &b.forward, transposed};
}

BlockMask read_block_mask(const char* name, nb::handle object,
                          std::optional<int64_t> columns) {
  const Array array = read_array(name, object);
  const bool fits =
      array.dtype == Dtype::u8 || (array.dtype == Dtype::boolean && !columns);
  const size_t dims = array.view.ndim();
  if (!fits || dims < 2) {
    refuse(std::string(name) + " must be [.., rows, columns] of " +
           (columns ? "uint8, a bit a block" : "bool or uint8") + ", found " +
           words_of(object) + " with " + std::to_string(dims) + " dimensions");
  }
  if (!in_c_order(array)) {
    refuse(std::string(name) + " must be in C order, found strides");
  }
  BlockMask out;
  for (size_t i = 0; i + 2 < dims; ++i) {
    out.lists *= static_cast<int64_t>(array.view.shape(i));
  }
  out.cells = {static_cast<const uint8_t*>(array.data()), array.view.size()};
  out.rows = static_cast<int64_t>(array.view.shape(dims - 2));
  out.columns =
      columns.value_or(static_cast<int64_t>(array.view.shape(dims - 1)));
  out.packed = columns.has_value();
  return out;
}

void bind_block_mask(nb::module_& m) {
  nb::class_<PyBlockLists> lists(
      m, "BlockLists",
      "Both worklists of a block mask. `block_lists` makes them.");
  lists
      .def_prop_ro(
          "forward",
          [](nb::object self) { return worklist_of_blocks(self, false); },
          "The worklist whose rows are the rows of the mask.")
      .def_prop_ro(
          "transposed",
          [](nb::object self) { return worklist_of_blocks(self, true); },
          "The worklist whose rows are the columns of the mask.")
      .def("__repr__", [](const PyBlockLists& b) {
        const Worklist& l = b.lists.forward;
        return "BlockLists(lists=" + std::to_string(l.lists) +
               ", rows=" + std::to_string(l.rows) +
               ", columns=" + std::to_string(l.columns) +
               ", tiles=" + std::to_string(l.entries.size()) + ")";
      });
  bind_json(lists, &values_of);
  bind_pickle(lists, &state_of, &of_state);
  m.def("block_lists", &make, nb::arg("mask"), nb::kw_only(),
        nb::arg("columns") = nb::none(), nb::arg("max_tiles") = nb::none(),
        nb::arg("isa") = nb::none(),
        nb::sig("def block_lists(mask: object, *, columns: int | None = None, "
                "max_tiles: int | None = None, isa: str | None = None) -> "
                "BlockLists"),
        "Makes both worklists of a mask that is whole blocks. Returns\n"
        "BlockLists.\n\n"
        "`mask` is [heads, rows, columns] of bool or uint8 in C order;\n"
        "dimensions before the rows count lists. If `columns` is given,\n"
        "the mask is uint8 with one bit for each block, as\n"
        "`numpy.packbits(mask, -1, 'little')` makes it. The lists are for\n"
        "kernels of your own; for a Batch, give the mask to `plan` as\n"
        "`block_mask`. Raises a TesseraError if more than `max_tiles`\n"
        "blocks are active.");
}

}  // namespace tessera::python
