// model/router.h: the router of a clustered layer inside the step: what the
// host's would pick of the same q and k (docs/routing.md), and the steps of the
// plan that hold a pick. All of it is integers, so no gradient goes through it.
#pragma once

#include "model/layer.h"

namespace tessera::model {

// Attention over what the layer picks, by that method.
Result<xla::Shape> picking_shape(const AttentionPlace& place, XlaMethod method);

struct Picked {
  // [batch, heads that pick, queries, top]: the query's own block, then the
  // best first; -1 where there is none.
  Value picks;
  // [batch, tile rows, blocks, heads that pick]: whether some, and whether
  // every query of the row picks the block.
  Value some, every;
};

// Of q and k as attention reads them. `s` is the picking shape, whose integers
// are bound by their names. A document must be one run of tokens.
Picked write_router(Writer& w, const xla::Shape& s, const LayerRoute& route,
                    const Value& q, const Value& k);

// A worklist for each batch row and head that picks, of the plan's, which has
// one for each batch row: steps of tiles that nobody picks a block of are gone,
// and a tile is full only where every query picks all of it. Of the marks of a
// step the last alone is set.
struct PickedSteps {
  Value steps, range;
};
PickedSteps write_picked_steps(Writer& w, const xla::Shape& s,
                               const LayerRoute& route, const Picked& picked,
                               const PickedSteps& plan);

}  // namespace tessera::model
