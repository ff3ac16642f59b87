// lanes/xla/block_loops.h: the loops of an attention program: over units of
// heads, in each over rows of blocks, in each over the blocks that the method
// visits.
#pragma once

#include <functional>
#include <optional>

#include "lanes/xla/legal.h"

namespace tessera::xla {

// Heads that one pass takes together; all are scalars.
struct Unit {
  Value batch, plan_head, head, kv_head;
};

class BlockLoops {
 public:
  BlockLoops(Writer& w, const Shape& s) : w_(w), s_(s) {}

  using Values = Writer::Values;
  using BlockBody = std::function<Values(const Block& block,
                                         const std::optional<Value>& tile_class,
                                         const Values& carried)>;
  // Visits the blocks of the row in hand; to be called once for each row.
  using Blocks = std::function<Values(const Values& start, const BlockBody&)>;
  using RowBody =
      std::function<Values(const Unit& unit, const Value& q_begin,
                           const Blocks& blocks, const Values& carried)>;

  // Each row of every unit. `carried` are arrays that rows write to.
  Values rows(const Values& start, const RowBody& body);

  // After rows(): active tiles that were visited, counted as they were; 0 where
  // no worklist says which are active.
  const Value& tiles() const { return tiles_; }

 private:
  Unit unit_of(const Value& number);
  Values listed_rows(const Unit& unit, const Values& start,
                     const RowBody& body);
  Values single_row(const Unit& unit, const Values& start, const RowBody& body);

  Writer& w_;
  const Shape& s_;
  Value tiles_;
};

}  // namespace tessera::xla
