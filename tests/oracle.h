// tests/oracle.h: brute-force legality from the definitions, in plain loops
// over tokens. Shares nothing with src/ but the public structs, and evaluates
// the expressions as they were written, so canonical forms are tested too.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/facts.h"
#include "tessera/mask.h"
#include "tessera/plan.h"

namespace tessera::testing {

// Classes of every tile of one (batch row, plan head), judged token by token.
struct DenseClasses {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<TileClass> cells;  // [rows, columns]
  int64_t legal_pairs = 0;

  TileClass at(int64_t row, int64_t column) const {
    return cells[static_cast<size_t>(row * columns + column)];
  }
};

class Oracle {
 public:
  // Reads only lengths, batch and tile of `request`; its masks are replaced by
  // `as_written`. Facts must be well formed and outlive the oracle.
  Oracle(std::vector<Expr> as_written, const Request& request,
         const Facts& facts);

  int64_t heads() const { return heads_; }
  bool legal(int64_t b, int64_t head, int64_t i, int64_t j) const;
  DenseClasses classes(int64_t b, int64_t head) const;
  // Whether the valid count or a negative id excludes the query from all keys.
  bool query_vetoed(int64_t b, int64_t head, int64_t i) const;

 private:
  // The tokens of one batch row, one entry for each token.
  struct Row {
    int64_t count = 0;
    bool has_count = false;
    int64_t prefix = 0;
    std::vector<int64_t> position;     // of query i
    std::vector<int64_t> k_doc;        // id of key j
    std::vector<int64_t> k_segment;    // number of j's run of equal ids
    std::vector<int64_t> rank_in_doc;  // keys of the same id before j
    std::vector<int64_t> rank_in_run;  // keys of the same run before j
    std::vector<int64_t> q_doc;
    std::vector<int64_t> q_segment;
    std::vector<int64_t> enter, leave;         // of token j
    std::vector<std::vector<int64_t>> groups;  // of token j, by letter
  };

  Row make_row(int64_t b) const;
  // Parts of make_row(). The ids of queries need the keys' ids and runs.
  void add_counts(int64_t b, Row& row) const;
  void add_key_ids(int64_t b, Row& row) const;
  void add_query_ids(int64_t b, Row& row) const;
  // A row's part of the values of all tokens.
  std::vector<int64_t> of_keys(const std::optional<Ints>& values,
                               int64_t b) const;

  bool holds(const Expr& e, const Expr& root, int64_t b, int64_t pick_head,
             int64_t i, int64_t j) const;

  std::vector<Expr> masks_;
  int64_t batch_, q_len_, kv_len_;
  Tile tile_;
  Facts facts_;
  int64_t pick_heads_ = 1;
  int64_t heads_ = 1;
  std::vector<Row> rows_;
};

// Whether `atom` occurs anywhere in the expression as written.
bool names_atom(const Expr& e, Atom atom);
bool names_ids(const Expr& e);    // documents or segments
bool names_picks(const Expr& e);  // blocks or routed

// Floor division, counted down one quotient at a time from the truncated one.
int64_t floor_divide(int64_t a, int64_t n);

}  // namespace tessera::testing
