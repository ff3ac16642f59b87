// facts.h: what changes with each batch, as Python gives it.
#pragma once

#include <nanobind/nanobind.h>

#include "tessera/plan.h"

namespace tessera::python {

namespace nb = nanobind;

// What `plan` and `route` take beside mask and lengths.
struct FactArguments {
  nb::object doc_ids, q_doc_ids, cu_seqlens, position_ids, valid_token_counts,
      prefix, q_offset, picks, tree_enter, tree_leave;
  nb::object same = nb::none();
};
// Of a request whose sizes and masks are checked here.
OwnedFacts read_facts(const FactArguments& given, const Request& request);

// Picks have one source; those of `picks` are facts already.
void read_selections(nb::handle picks, nb::handle topk_idxs,
                     nb::handle block_mask, const Request& request,
                     OwnedFacts& facts);

}  // namespace tessera::python
