// lanes/xla/block_loops.h: the nested loops of an attention program: over units
// of heads, over rows of blocks, and over the blocks that the method visits.
#pragma once

#include <functional>
#include <optional>

#include "lanes/xla/legal.h"

namespace tessera::xla {

// Heads that are computed together: their first indices, as scalars.
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
  // Visits the blocks of the current row; to be called once for each row.
  using Blocks = std::function<Values(const Values& start, const BlockBody&)>;
  using RowBody =
      std::function<Values(const Unit& unit, const Value& q_begin,
                           const Blocks& blocks, const Values& carried)>;

  // Loops over the rows of every unit. `carried`: the arrays that rows write.
  Values rows(const Values& start, const RowBody& body);

  // After rows(): active tiles visited, counted at run time; 0 if not listed.
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
