#include "block_mask.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <string>

#include "arrays.h"
#include "batch.h"
#include "failure.h"

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
  auto made = [&] {
    const nb::gil_scoped_release released;
    return worklists_of_blocks(cells, out.lists, options);
  }();
  take(std::move(made));
  return nb::cast(std::move(out));
}

}  // namespace

BlockMask read_block_mask(const char* name, nb::handle object,
                          std::optional<int64_t> columns) {
  const Array array = read_array(name, object);
  const bool fits =
      array.dtype == Dtype::u8 || (array.dtype == Dtype::boolean && !columns);
  const size_t dims = array.view.ndim();
  if (!fits || dims < 2) {
    const nb::object dtype = object.attr("dtype");
    refuse(std::string(name) + " must be [.., rows, columns] of " +
           (columns ? "uint8, a bit a block" : "bool or uint8") + ", found " +
           std::to_string(dims) + " dimensions of " +
           nb::cast<std::string>(nb::str(nb::handle(dtype))));
  }
  BlockMask out;
  int64_t size = 1;
  for (size_t i = dims; i-- > 0;) {
    const auto n = static_cast<int64_t>(array.view.shape(i));
    if (n > 1 && array.view.stride(i) != size) {
      refuse(std::string(name) + " must be in C order, found strides");
    }
    size *= n;
    if (i + 2 < dims) out.lists *= n;
  }
  out.cells = {static_cast<const uint8_t*>(array.data()),
               static_cast<size_t>(size)};
  out.rows = static_cast<int64_t>(array.view.shape(dims - 2));
  out.columns =
      columns.value_or(static_cast<int64_t>(array.view.shape(dims - 1)));
  out.packed = columns.has_value();
  return out;
}

void bind_block_mask(nb::module_& m) {
  nb::class_<PyBlockLists>(m, "BlockLists", "The lists of a block mask.")
      .def_prop_ro("forward",
                   [](nb::object self) {
                     auto& b = nb::cast<PyBlockLists&>(self);
                     return PyWorklist{self, &b.lists.forward, &b.forward};
                   })
      .def_prop_ro(
          "transposed",
          [](nb::object self) {
            auto& b = nb::cast<PyBlockLists&>(self);
            return PyWorklist{self, &b.lists.transposed, &b.transposed};
          })
      .def("__repr__", [](const PyBlockLists& b) {
        const Worklist& l = b.lists.forward;
        return "BlockLists(lists=" + std::to_string(l.lists) +
               ", rows=" + std::to_string(l.rows) +
               ", columns=" + std::to_string(l.columns) +
               ", tiles=" + std::to_string(l.entries.size()) + ")";
      });
  m.def("block_lists", &make, nb::arg("mask"), nb::kw_only(),
        nb::arg("columns") = nb::none(), nb::arg("max_tiles") = nb::none(),
        nb::arg("isa") = nb::none(),
        nb::sig("def block_lists(mask: object, *, columns: int | None = None, "
                "max_tiles: int | None = None, isa: str | None = None) -> "
                "BlockLists"),
        "Both worklists of a mask that is whole blocks, [heads, rows, columns] "
        "of bool.\n\nFor kernels of one's own; `plan` has `block_mask`. Where "
        "`columns` are given, the mask is uint8 with a bit a block, as "
        "`numpy.packbits(mask, -1, 'little')` makes it. More active blocks "
        "than `max_tiles` are an error.");
}

}  // namespace tessera::python
