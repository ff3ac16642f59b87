// model/router.h: the router of a clustered layer inside the step. It picks
// what the host's router would pick for the same q and k (docs/routing.md), and
// keeps the steps of the plan that hold a pick. All outputs are integers, so
// they have no gradient.
#pragma once

#include "model/layer.h"

namespace tessera::model {

// The shape of attention, by that method, over what the layer picks.
Result<xla::Shape> picking_shape(const AttentionPlace& place, XlaMethod method);

struct Picked {
  // [batch, heads that pick, queries, top]: the query's own block, then the
  // others, best first; -1 where there is none.
  Value picks;
  // [batch, tile rows, blocks, heads that pick]: whether any query, and whether
  // every query of the tile row picks the block.
  Value some, every;
};

// q and k are as attention reads them. `s` is the picking shape, whose integers
// are bound by their names. Each document must be one run of tokens.
Picked write_router(Writer& w, const xla::Shape& s, const LayerRoute& route,
                    const Value& q, const Value& k);

// Makes a worklist for each batch row and head that picks, from the plan, which
// has one for each batch row. Steps whose tile holds no picked block are
// removed, and a tile stays full only if every query picks all of its blocks.
// Of the marks of a step only the last-of-row mark is set.
struct PickedSteps {
  Value steps, range;
};
PickedSteps write_picked_steps(Writer& w, const xla::Shape& s,
                               const LayerRoute& route, const Picked& picked,
                               const PickedSteps& plan);

}  // namespace tessera::model
