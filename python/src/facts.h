// facts.h: facts, which change with each batch, read from Python arguments.
#pragma once

#include <nanobind/nanobind.h>

#include "tessera/plan.h"

namespace tessera::python {

namespace nb = nanobind;

// The arguments of `plan` and `route` beside mask and lengths.
struct FactArguments {
  nb::object doc_ids, q_doc_ids, cu_seqlens, position_ids, valid_token_counts,
      prefix, q_offset, picks, tree_enter, tree_leave;
  nb::object same = nb::none();
};
// Also checks the sizes and masks of the request.
OwnedFacts read_facts(const FactArguments& given, const Request& request);

// Adds picks to the facts. At most one of the three sources may be given; those
// of `picks` are in the facts already.
void read_selections(nb::handle picks, nb::handle topk_idxs,
                     nb::handle block_mask, const Request& request,
                     OwnedFacts& facts);

}  // namespace tessera::python
