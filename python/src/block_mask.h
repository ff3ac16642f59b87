// block_mask.h: masks that are whole blocks, and their worklists.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>

#include "tessera/layouts.h"
#include "worklist.h"

namespace tessera::python {

namespace nb = nanobind;

// A view of a [.., rows, columns] array of bool or uint8 in C order. If
// `columns` is given, the array is uint8 with one bit for each block. All
// dimensions before the rows count lists.
BlockMask read_block_mask(const char* name, nb::handle object,
                          std::optional<int64_t> columns);

// The lists of `owner`, which must be a `BlockLists`.
PyWorklist worklist_of_blocks(nb::object owner, bool transposed);

void bind_block_mask(nb::module_& m);

}  // namespace tessera::python
