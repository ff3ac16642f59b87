// picture/parts.h: shared by the three pictures: checks, counts, document spans
// on both axes, shaded cells.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "picture/picture.h"

namespace tessera::picture {

// A run of tokens of one document on an axis.
struct DocumentSpan {
  enum class Kind : uint8_t { document, padding, outside };

  int64_t begin = 0;
  int64_t end = 0;
  int32_t id = 0;
  Kind kind = Kind::document;  // outside: a query without a key position
  int64_t order = 0;           // rank of the id's first use, keys first

  bool operator==(const DocumentSpan&) const = default;
};

struct Parts {
  int64_t list = 0;
  int64_t batch_row = 0;
  int64_t head = 0;
  int64_t q_offset = 0;
  int64_t empty = 0;  // counts of tiles, by class
  int64_t partial = 0;
  int64_t full = 0;
  int64_t pairs = 0;  // pairs of tokens
  int64_t paid = 0;
  int64_t needed = 0;
  int64_t documents = 0;  // distinct ids
  // Both empty if the facts hold no ids.
  std::vector<DocumentSpan> keys;
  std::vector<DocumentSpan> queries;

  int64_t active() const { return partial + full; }
  int64_t total() const { return empty + active(); }
};

// Checks that plan and facts fit together and that the chosen list exists.
Result<void> check_input(const Input& input);
// The parts of any list of a checked input.
Parts make_parts(const Input& input, int64_t batch_row, int64_t head);

// Adjacent tiles of one class.
struct TileRun {
  int64_t begin = 0;
  int64_t end = 0;
  TileClass tile_class = TileClass::empty;

  bool operator==(const TileRun&) const = default;
};
std::vector<TileRun> tile_runs(std::span<const Entry> row);

// The tiles of one list counted in cells of `down` x `across` tiles.
struct Cell {
  int64_t partial = 0;
  int64_t full = 0;
  int64_t total = 0;

  int64_t active() const { return partial + full; }
};
struct Cells {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t down = 1;
  int64_t across = 1;
  std::vector<Cell> cells;

  const Cell& at(int64_t r, int64_t c) const {
    return cells[static_cast<size_t>(r * columns + c)];
  }
};
Cells make_cells(const Worklist& w, int64_t list, int64_t down, int64_t across);

// The spans that overlap tokens [begin, end): the first one and their number.
struct SpanRange {
  size_t first = 0;
  size_t count = 0;
};
SpanRange spans_in(const std::vector<DocumentSpan>& spans, int64_t begin,
                   int64_t end);

std::string subtitle(const Input& input);

}  // namespace tessera::picture
