// mask/classify.h: exact classes of a tile row, from intervals of keys.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "mask/bind.h"
#include "mask/parts.h"
#include "mask/program.h"
#include "mask/runs.h"

namespace tessera::mask {

// Classifies tile rows in ascending order, for one (batch row, plan head) after
// another. A Classifier reuses its scratch memory.
class Classifier {
 public:
  explicit Classifier(const Bound& bound);

  void begin_batch_row(int64_t batch_row);
  void begin_list(const Program& program, int64_t head);
  // Spans in ascending order, valid until the next call.
  const std::vector<Span>& tile_row(int64_t r);
  // Queries [q, result) have the same legal keys except for the distance; q <
  // result <= max(most, q + 1). Queries must ascend, as in tile rows.
  int64_t alike_until(int64_t q, int64_t most);

 private:
  // Queries at positions [begin, end) whose legal keys differ only by the
  // distance.
  struct Piece {
    int64_t begin = 0;
    int64_t end = 0;
    int64_t run = 0;  // run of the keys, or of q_ids where given
    int32_t id = 0;
    int64_t chunks = 0;  // sum of the indices of its large chunks
    int64_t tree = 0;    // run of the tree
    int64_t before = 0;  // queries of the pieces before it
  };
  // Pieces of one id, or of one tree. Their legal keys differ only by the
  // distance and by the local atoms, which are the atoms that can differ
  // between pieces of one id.
  struct Group {
    const Piece* first = nullptr;
    const Piece* last = nullptr;  // one past
    int64_t queries = 0;
    int64_t begin() const { return first->begin; }
    int64_t end() const { return (last - 1)->end; }
  };
  struct Toggle {
    int64_t at;
    uint64_t bit;
  };

  // Cuts queries [begin, end) into pieces_; only the first piece if `first`.
  // Returns the query at which it stopped.
  int64_t cut_pieces(int64_t begin, int64_t end, bool first);
  void sort_by_id();
  bool is_large(const KeyAtom& atom) const;
  Interval reach_of(const Group& group) const;
  Interval document_of(const Piece& piece) const;
  void share_path(const Group& group);
  void add_branches(const Group& group);
  const std::vector<Interval>& own_path(const Piece& piece);

  void add_group(const Group& group);
  void add_shared(const Group& group, Interval keys);
  // Adds the legal pairs in `keys`, taking key atoms not in `atoms` as false.
  void add_keys(const Group& group, Interval keys, uint64_t atoms);
  void add_scattered(const Group& group, Interval keys, uint64_t atoms);
  void add_document_runs(const Group& group, Interval keys, uint64_t state);
  void add_columns(const Group& group, int64_t begin, int64_t end,
                   uint64_t state);
  void add_strip(const Group& group, Interval strip, uint64_t state);
  void add_bands(const Group& group, Interval strip, uint64_t bands);
  void add_pieces(const Group& group, Interval strip, int64_t from, int64_t to);

  // These extend toggles_: the keys at which key atoms begin and end.
  void toggle_atoms(uint64_t atoms, const Group& group, Interval keys);
  void toggle_atom(const KeyAtom& atom, uint64_t bit, const Group& group,
                   Interval keys);
  void toggle_places(const IdRuns& runs, Interval places, uint64_t bit,
                     int64_t first_n, Interval keys);
  void toggle_all(const std::vector<Interval>& intervals, uint64_t bit,
                  Interval keys);
  void toggle(Interval interval, uint64_t bit, Interval keys);

  const Bound& bound_;
  const Program* program_ = nullptr;
  const BoundRow* row_ = nullptr;
  int64_t batch_row_ = 0;
  int64_t head_ = 0;
  Divider column_;

  IdRuns runs_;                               // runs of the keys' ids
  IdRuns q_runs_;                             // runs of q_doc_ids, where given
  std::array<IdRuns, kSameNames> same_runs_;  // of same(a), same(b), ...
  bool scattered_ = false;
  ColumnCounts counts_;  // used if ids are scattered
  int64_t cursor_ = 0;   // run of the last piece
  bool ids_veto_ = false;
  uint64_t own_bits_ = 0;  // key atoms that hold for the query's own id only
  uint64_t local_bits_ = 0;
  uint64_t document_bit_ = 0;

  const Tree* tree_ = nullptr;  // null unless the list's mask reads a tree
  int64_t tree_cursor_ = 0;     // run of the last piece in the tree
  int64_t shared_run_ = -1;     // last run on the path to all pieces of a group
  std::vector<Interval> shared_path_;
  std::vector<Interval> own_path_;  // path of one piece after shared_run_
  const Piece* own_path_of_ = nullptr;
  uint64_t branch_bit_ = 0;   // the key atom tree (n 1)
  std::vector<int64_t> met_;  // per run: the last group that visited it
  int64_t groups_ = 0;

  std::vector<Piece> pieces_;
  std::vector<Toggle> toggles_;
  std::vector<Interval> picked_;
  std::vector<Interval> local_;
  std::vector<Interval> strips_;  // strips of add_scattered, with their states
  std::vector<uint64_t> states_;
  Parts parts_;
  std::vector<Span> spans_;
};

}  // namespace tessera::mask
