// tessera/plan.h: the request, the exact worklists planned for it, and the test
// whether one (query, key) pair is legal. batch.h makes plans.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/facts.h"
#include "tessera/mask.h"
#include "tessera/result.h"

namespace tessera {

struct Tile {
  int64_t q = 256;
  int64_t kv = 256;

  bool operator==(const Tile&) const = default;
};

// Ceilings fix the contract for a whole run. 0: the bucket of each batch.
struct Ceilings {
  int64_t max_steps = 0;
  int64_t max_width = 0;
  int64_t max_union = 0;  // blocks in the union of a tile row's picks

  bool operator==(const Ceilings&) const = default;
};

struct Request {
  std::vector<Mask> masks;  // one for all heads, or one per group of heads
  int64_t batch = 1;
  int64_t q_len = 0;
  int64_t kv_len = 0;
  Tile tile;
  // A side of 0 is the tile's side. Reports use the logical block. On a TPU a
  // logical block below the granule needs a reason (tessera/machine.h).
  Tile logical_block{0, 0};
  Ceilings ceilings;

  bool operator==(const Request&) const = default;
};

// Limits of a request; more is an error.
inline constexpr int64_t kMaxTokens = int64_t{1} << 30;
inline constexpr int64_t kMaxBatch = int64_t{1} << 20;
inline constexpr int64_t kMinBlock = 8;
inline constexpr int64_t kMaxBlock = 4096;
inline constexpr int64_t kMaxTiles = int64_t{1} << 28;
inline constexpr int64_t kMaxCeiling = int64_t{1} << 40;

enum class TileClass : uint8_t { empty = 0, partial = 1, full = 2 };

// One active tile of a worklist row: column << 2 | class.
struct Entry {
  uint32_t word = 0;

  static Entry of(int64_t column, TileClass c) {
    return {static_cast<uint32_t>(column) << 2 | static_cast<uint32_t>(c)};
  }
  int64_t column() const { return word >> 2; }
  TileClass tile_class() const { return static_cast<TileClass>(word & 3); }
  bool operator==(const Entry&) const = default;
};

// The active tiles of every row, ascending by column. List l = batch row *
// plan heads + plan head; its row r is entries [row_start[l * rows + r],
// row_start[l * rows + r + 1]). In a transposed worklist rows are key tiles and
// columns query tiles.
struct Worklist {
  int64_t lists = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<uint32_t> row_start;  // lists * rows + 1
  std::vector<Entry> entries;

  std::span<const Entry> row(int64_t list, int64_t r) const {
    const size_t at = static_cast<size_t>(list * rows + r);
    return {entries.data() + row_start[at], row_start[at + 1] - row_start[at]};
  }
  bool operator==(const Worklist&) const = default;
};

struct Plan {
  int64_t batch = 1;
  int64_t heads = 1;  // plan heads: one unless masks or picks differ by head
  int64_t q_len = 0;
  int64_t kv_len = 0;
  Tile tile;
  Worklist forward;
  Worklist transposed;
  std::vector<int64_t> legal_pairs;  // per list
  // The meaning of the picks; absent if no mask names picks.
  std::optional<RouteMeaning> meaning;
  std::vector<std::string> warnings;

  int64_t list(int64_t batch_row, int64_t head) const {
    return batch_row * heads + head;
  }
  bool operator==(const Plan&) const = default;
};

// Swaps rows and columns. transpose(transpose(w)) == w.
Worklist transpose(const Worklist& w);

struct ExplainStep {
  int64_t depth = 0;  // in the expression tree
  std::string text;   // "causal"
  bool holds = false;
  std::string why;  // "key 7 <= position 9"
};

struct Explanation {
  bool legal = false;
  std::vector<ExplainStep> expression;  // root first
  std::vector<ExplainStep> vetoes;      // `holds`: the veto forbids the pair
  int64_t position = 0;
  int64_t tile_row = 0;
  int64_t tile_column = 0;
};

// A request bound to validated facts. Holds derived arrays of O(tokens) and
// views of the facts; the arrays of the facts must outlive it.
class Legality {
 public:
  static Result<Legality> bind(const Request& request, const Facts& facts);
  Legality(Legality&&) noexcept;
  Legality& operator=(Legality&&) noexcept;
  ~Legality();

  int64_t heads() const;  // plan heads
  bool legal(int64_t batch_row, int64_t head, int64_t q, int64_t k) const;
  Explanation explain(int64_t batch_row, int64_t head, int64_t q,
                      int64_t k) const;

 private:
  struct State;
  explicit Legality(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tessera
