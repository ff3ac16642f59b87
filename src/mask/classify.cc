// mask/classify.cc: exact classes in closed form.
//
// The queries of a tile row are cut into pieces in which only the distance to a
// key varies. For a piece, the key axis is cut into strips in which only the
// distance varies too (mask/program.h). The legal pairs are then a union of
// disjoint shapes
//     { (p, k) : p in piece, k in strip, from <= k - p < to },
// and a tile's class follows from the number of legal pairs in it
// (mask/parts.h): empty at 0, full at all its real pairs, else partial.
//
// Ids that repeat make many short runs, and pieces times runs would be
// quadratic in a tile row. So pieces of one id are taken together: first as if
// no local atom held (an atom that differs between these pieces), then the
// difference for each piece where one holds. If runs are short, whole columns
// are settled by the number of their keys that have the id.
//
// A tree allows the keys on the path from the root to the query. Pieces in
// different branches are taken together too: first the path shared by all of
// them, then, run by run, the path to some of them, which are adjacent. Such a
// run lies in the tile row or ends there, so each is visited a few times only.
#include "mask/classify.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/integers.h"

namespace tessera::mask {
namespace {

// A document with more runs than this is worth sharing or counting.
constexpr int64_t kManyRuns = 4;
// Up to this many pieces, a linear scan is cheaper than a binary search.
constexpr int64_t kFewPieces = 8;

int64_t run_at(const IdRuns& runs, int64_t position) {
  const auto behind =
      std::upper_bound(runs.start.begin(), runs.start.end(), position);
  return behind - runs.start.begin() - 1;
}

}  // namespace

Classifier::Classifier(const Bound& bound)
    : bound_(bound),
      column_(bound.tile.kv),
      parts_(bound.kv_len, bound.tile.kv) {}

void Classifier::begin_batch_row(int64_t batch_row) {
  batch_row_ = batch_row;
  row_ = &bound_.rows[static_cast<size_t>(batch_row)];
  for (size_t i = 0; i < same_runs_.size(); ++i) {
    if (!row_->same[i]) continue;
    find_runs(row_->same[i], bound_.kv_len, same_runs_[i]);
    link_runs(same_runs_[i]);
  }
  if (!row_->ids) return;
  find_runs(row_->ids, bound_.kv_len, runs_);
  link_runs(runs_);
  if (row_->q_ids) find_runs(row_->q_ids, bound_.q_len, q_runs_);
  scattered_ = !runs_.distinct && runs_.count() > parts_.columns();
  if (scattered_) count_columns(runs_, bound_.tile.kv, counts_);
}

void Classifier::begin_list(const Program& program, int64_t head) {
  program_ = &program;
  head_ = head;
  cursor_ = 0;
  tree_ = nullptr;
  tree_cursor_ = 0;
  branch_bit_ = 0;
  const Names& names = program.names;
  ids_veto_ = names.documents || names.segments;
  own_bits_ = 0;
  local_bits_ = 0;
  document_bit_ = 0;
  for (size_t i = 0; i < program.keys.size(); ++i) {
    const KeyAtom& atom = program.keys[i];
    const uint64_t bit = uint64_t{1} << i;
    if (atom.atom == Atom::tree) {
      tree_ = &bound_.trees[static_cast<size_t>(batch_row_)];
      if (atom.n == 1) branch_bit_ = bit;
    }
    const bool by_segment = atom.atom == Atom::segments ||
                            (atom.atom == Atom::sink && names.segments);
    if (by_segment || atom.atom == Atom::documents ||
        (atom.atom == Atom::sink && ids_veto_)) {
      own_bits_ |= bit;
    }
    if (atom.atom == Atom::documents) document_bit_ = bit;
    if (by_segment || atom.atom == Atom::blocks || atom.atom == Atom::same ||
        (atom.atom == Atom::chunk && !is_large(atom))) {
      local_bits_ |= bit;
    }
  }
}

const std::vector<Span>& Classifier::tile_row(int64_t r) {
  spans_.clear();
  parts_.clear();
  const int64_t q0 = r * bound_.tile.q;
  cut_pieces(q0, std::min(q0 + bound_.tile.q, row_->q_end), false);
  sort_by_id();
  int64_t before = 0;
  for (Piece& p : pieces_) {
    p.before = before;
    before += p.end - p.begin;
  }
  const Piece* const end = pieces_.data() + pieces_.size();
  for (const Piece* p = pieces_.data(); p != end;) {
    Group group{p, p + 1, p->end - p->begin};
    while ((ids_veto_ || tree_) && group.last != end &&
           group.last->id == p->id && group.last->chunks == p->chunks) {
      group.queries += group.last->end - group.last->begin;
      ++group.last;
    }
    add_group(group);
    p = group.last;
  }
  parts_.finish(std::min(bound_.tile.q, bound_.q_len - q0), spans_);
  return spans_;
}

// A tile row crosses few ends of chunks at least as long as it, so these chunks
// split groups. A smaller chunk only splits pieces.
bool Classifier::is_large(const KeyAtom& atom) const {
  return atom.n >= bound_.tile.q;
}

// Pieces of one id can be apart only if ids repeat.
void Classifier::sort_by_id() {
  if (!ids_veto_ || (runs_.distinct && !row_->q_ids)) return;
  std::stable_sort(pieces_.begin(), pieces_.end(),
                   [](const Piece& l, const Piece& r) {
                     return l.id != r.id ? l.id < r.id : l.chunks < r.chunks;
                   });
}

int64_t Classifier::cut_pieces(int64_t begin, int64_t end, bool first) {
  pieces_.clear();
  const int64_t offset = row_->q_offset;
  const IdRuns& runs = row_->q_ids ? q_runs_ : runs_;
  // q_ids are indexed by query, ids by position.
  const int64_t shift = row_->q_ids ? offset : 0;
  int64_t p = begin + offset;
  while (p < end + offset) {
    Piece piece{p, end + offset, 0, 0, 0, 0, 0};
    if (ids_veto_) {
      while (runs.start[cursor_ + 1] + shift <= p) ++cursor_;
      piece.end = std::min(piece.end, runs.start[cursor_ + 1] + shift);
      piece.run = cursor_;
      piece.id = runs.id[cursor_];
      if (piece.id < 0) {
        p = piece.end;
        if (first) break;
        continue;
      }
    }
    if (tree_) {
      while (tree_->start[tree_cursor_ + 1] <= p) ++tree_cursor_;
      piece.end = std::min<int64_t>(piece.end, tree_->start[tree_cursor_ + 1]);
      piece.tree = tree_cursor_;
    }
    for (const KeyAtom& atom : program_->keys) {
      if (atom.atom == Atom::chunk) {
        const int64_t number = floor_div(p, atom.n);
        if (is_large(atom)) piece.chunks += number;
        piece.end = std::min(piece.end, (number + 1) * atom.n);
      } else if (atom.atom == Atom::same) {
        const IdRuns& ids = same_runs_[static_cast<size_t>(atom.n)];
        const auto run = static_cast<size_t>(run_at(ids, p));
        piece.end = std::min<int64_t>(piece.end, ids.start[run + 1]);
      } else if (atom.atom == Atom::blocks) {
        const int32_t* picks = bound_.picks_of(batch_row_, head_, p - offset);
        const auto bytes = static_cast<size_t>(bound_.picks_k) * sizeof(*picks);
        int64_t same = p + 1;
        const int32_t* next = picks + bound_.picks_k;
        while (same < piece.end && std::memcmp(picks, next, bytes) == 0) {
          ++same;
          next += bound_.picks_k;
        }
        piece.end = same;
      }
    }
    pieces_.push_back(piece);
    p = piece.end;
    if (first) break;
  }
  return p - offset;
}

int64_t Classifier::alike_until(int64_t q, int64_t most) {
  const int64_t end = cut_pieces(q, std::min(most, row_->q_end), true);
  return std::max(end, q + 1);
}

// The keys within the legal distances of a group.
Interval Classifier::reach_of(const Group& group) const {
  return {std::max<int64_t>(0, group.begin() + program_->reach_begin),
          std::min(row_->valid, group.end() - 1 + program_->reach_end)};
}

Interval Classifier::document_of(const Piece& piece) const {
  return row_->q_ids ? places_of_id(runs_, piece.id)
                     : places_of_run(runs_, piece.run);
}

void Classifier::share_path(const Group& group) {
  int64_t run = group.first->tree;
  while (run >= 0 && tree_->end[run] < group.end()) run = tree_->parent[run];
  shared_run_ = run;
  shared_path_.clear();
  append_path(*tree_, run, -1, shared_path_);
  own_path_of_ = nullptr;
}

const std::vector<Interval>& Classifier::own_path(const Piece& piece) {
  if (own_path_of_ != &piece) {
    own_path_.clear();
    append_path(*tree_, piece.tree, shared_run_, own_path_);
    own_path_of_ = &piece;
  }
  return own_path_;
}

void Classifier::add_group(const Group& group) {
  constexpr uint64_t kAll = ~uint64_t{0};
  if (tree_) share_path(group);
  // Taken piece by piece, each piece costs every run of its document. So the
  // pieces of a document with many runs share work.
  if ((local_bits_ | branch_bit_) == 0 || group.last - group.first == 1) {
    add_keys(group, reach_of(group), kAll);
    return;
  }
  const auto has_many_runs = [&] {
    const Interval document = document_of(*group.first);
    return document.end - document.begin > kManyRuns;
  };
  if (tree_ || has_many_runs()) {
    add_shared(group, reach_of(group));
    return;
  }
  for (const Piece* p = group.first; p != group.last; ++p) {
    const Group alone{p, p + 1, p->end - p->begin};
    add_keys(alone, reach_of(alone), kAll);
  }
}

// Adds all pieces at once as if no local atom held. Then, for each piece with
// keys where a local atom holds, adds the difference.
void Classifier::add_shared(const Group& group, Interval keys) {
  add_keys(group, keys, ~(local_bits_ | branch_bit_));
  if (tree_) add_branches(group);
  if (local_bits_ == 0) return;
  for (const Piece* p = group.first; p != group.last; ++p) {
    const Group alone{p, p + 1, p->end - p->begin};
    toggle_atoms(local_bits_, alone, reach_of(alone));
    local_.clear();
    uint64_t state = 0;
    for (const Toggle& t : toggles_) {
      if (state == 0) local_.push_back({t.at, t.at});
      state ^= t.bit;
      local_.back().end = t.at;
    }
    for (const Interval& i : local_) {
      if (i.begin == i.end) continue;
      add_keys(alone, i, ~uint64_t{0});
      parts_.set_times(-1);
      add_keys(alone, i, ~local_bits_);
      parts_.set_times(1);
    }
  }
}

// Adds the runs on the path to some, but not all, pieces of the group: for each
// run, the difference that it makes for the adjacent pieces in its subtree.
// Local atoms are taken as false.
void Classifier::add_branches(const Group& group) {
  met_.resize(tree_->end.size());
  ++groups_;
  for (const Piece* p = group.first; p != group.last; ++p) {
    for (int64_t run = p->tree; run != shared_run_; run = tree_->parent[run]) {
      // An earlier piece of the group visited this run and all its ancestors.
      const auto at = static_cast<size_t>(run);
      if (met_[at] == groups_) break;
      met_[at] = groups_;
      const Piece* const last = std::partition_point(
          p, group.last,
          [&](const Piece& other) { return other.begin < tree_->end[at]; });
      const Piece& back = last[-1];
      const Group below{p, last,
                        back.before + back.end - back.begin - p->before};
      const Interval reach = reach_of(below);
      const Interval keys = {
          std::max<int64_t>(reach.begin, tree_->start[at]),
          std::min<int64_t>(reach.end, tree_->start[at + 1])};
      own_path_.assign(1, keys);
      own_path_of_ = p;
      add_keys(below, keys, ~local_bits_);
      parts_.set_times(-1);
      add_keys(below, keys, ~(local_bits_ | branch_bit_));
      parts_.set_times(1);
    }
  }
  own_path_of_ = nullptr;
}

void Classifier::toggle_atoms(uint64_t atoms, const Group& group,
                              Interval keys) {
  auto earlier = [](const Toggle& l, const Toggle& r) { return l.at < r.at; };
  toggles_.clear();
  for (size_t i = 0; i < program_->keys.size(); ++i) {
    const uint64_t bit = uint64_t{1} << i;
    if (!(atoms & bit)) continue;
    const auto before = static_cast<std::ptrdiff_t>(toggles_.size());
    toggle_atom(program_->keys[i], bit, group, keys);
    // Each atom's toggles are already ascending.
    const auto middle = toggles_.begin() + before;
    if (before > 0 && middle != toggles_.end() &&
        earlier(*middle, middle[-1])) {
      std::inplace_merge(toggles_.begin(), middle, toggles_.end(), earlier);
    }
  }
}

void Classifier::add_keys(const Group& group, Interval keys, uint64_t atoms) {
  if (keys.begin >= keys.end) return;
  if (scattered_ && (atoms & document_bit_)) {
    add_scattered(group, keys, atoms);
    return;
  }
  toggle_atoms(atoms, group, keys);
  int64_t at = keys.begin;
  uint64_t state = 0;
  for (const Toggle& t : toggles_) {
    if (t.at > at) {
      add_strip(group, {at, t.at}, state);
      at = t.at;
    }
    state ^= t.bit;
  }
  if (at < keys.end) add_strip(group, {at, keys.end}, state);
}

// add_keys for ids scattered over short runs. Away from the thresholds a whole
// column is settled by the number of its keys in the group's document. Runs are
// examined only near the thresholds and at the ends of other intervals.
void Classifier::add_scattered(const Group& group, Interval keys,
                               uint64_t atoms) {
  toggle_atoms(atoms & ~document_bit_, group, keys);
  strips_.clear();
  states_.clear();
  int64_t at = keys.begin;
  uint64_t state = 0;
  auto cut = [&](int64_t end) {
    if (end <= at) return;
    strips_.push_back({at, end});
    states_.push_back(state);
    at = end;
  };
  for (const Toggle& t : toggles_) {
    cut(t.at);
    state ^= t.bit;
  }
  cut(keys.end);

  for (size_t i = 0; i < strips_.size(); ++i) {
    const Interval strip = strips_[i];
    auto add_even = [&](Interval even) {
      const int64_t first = column_.ceil(even.begin);
      const int64_t last = column_.floor(even.end);
      if (first >= last || (states_[i] & own_bits_) != 0) {
        add_document_runs(group, even, states_[i]);
        return;
      }
      const int64_t block = bound_.tile.kv;
      add_document_runs(group, {even.begin, first * block}, states_[i]);
      add_columns(group, first, last, states_[i]);
      add_document_runs(group, {last * block, even.end}, states_[i]);
    };
    int64_t from = strip.begin;
    for (const int64_t t : program_->thresholds) {
      // In [begin, end) the threshold t lies between queries of the group.
      const int64_t begin = std::clamp(group.begin() + t, from, strip.end);
      const int64_t end = std::clamp(group.end() - 1 + t, from, strip.end);
      add_even({from, begin});
      add_document_runs(group, {begin, end}, states_[i]);
      from = end;
    }
    add_even({from, strip.end});
  }
}

// Adds keys in which only the group's document begins and ends.
void Classifier::add_document_runs(const Group& group, Interval keys,
                                   uint64_t state) {
  if (keys.begin >= keys.end) return;
  toggles_.clear();
  toggle_places(runs_, document_of(*group.first), document_bit_, kFar, keys);
  int64_t at = keys.begin;
  for (const Toggle& t : toggles_) {
    if (t.at > at) add_strip(group, {at, t.at}, state);
    at = t.at;
    state ^= document_bit_;
  }
  if (at < keys.end) add_strip(group, {at, keys.end}, state);
}

// Adds whole columns [begin, end) in which every pair lies in one band.
void Classifier::add_columns(const Group& group, int64_t begin, int64_t end,
                             uint64_t state) {
  const std::vector<int64_t>& t = program_->thresholds;
  const int64_t distance = begin * bound_.tile.kv - group.begin();
  const auto band = std::upper_bound(t.begin(), t.end(), distance) - t.begin();
  const bool others = program_->legal_bands(state) >> band & 1;
  const bool own = program_->legal_bands(state | document_bit_) >> band & 1;
  if (others) {
    parts_.add(begin, end, group.queries * bound_.tile.kv);
    if (runs_.any_negative) {
      for (int64_t c = begin; c < end; ++c) {
        parts_.add(c, c + 1, -group.queries * counts_.negative[c]);
      }
    }
  }
  if (others == own) return;
  const auto counts = counts_.of(document_of(*group.first));
  auto it = std::partition_point(
      counts.begin(), counts.end(),
      [&](ColumnCounts::Count c) { return c.column < begin; });
  for (; it != counts.end() && it->column < end; ++it) {
    parts_.add(it->column, it->column + 1,
               (own ? 1 : -1) * group.queries * it->keys);
  }
}

void Classifier::toggle(Interval interval, uint64_t bit, Interval keys) {
  const int64_t begin = std::max(interval.begin, keys.begin);
  const int64_t end = std::min(interval.end, keys.end);
  if (begin >= end) return;
  toggles_.push_back({begin, bit});
  toggles_.push_back({end, bit});
}

// `intervals` ascend and do not touch.
void Classifier::toggle_all(const std::vector<Interval>& intervals,
                            uint64_t bit, Interval keys) {
  auto it =
      std::partition_point(intervals.begin(), intervals.end(),
                           [&](Interval i) { return i.end <= keys.begin; });
  for (; it != intervals.end() && it->begin < keys.end; ++it) {
    toggle(*it, bit, keys);
  }
}

// Toggles the first `first_n` keys of the runs at `places`.
void Classifier::toggle_places(const IdRuns& runs, Interval places,
                               uint64_t bit, int64_t first_n, Interval keys) {
  if (runs.distinct) {
    for (int64_t run = places.begin; run < places.end; ++run) {
      const int64_t begin = runs.start[run];
      const int64_t end = runs.start[run + 1];
      toggle({begin, std::min(end, begin + first_n)}, bit, keys);
    }
    return;
  }
  const auto order = runs.order.begin();
  auto it = std::partition_point(
      order + places.begin, order + places.end,
      [&](int32_t run) { return runs.start[run + 1] <= keys.begin; });
  for (; it != order + places.end; ++it) {
    const int64_t begin = runs.start[*it];
    const int64_t end = runs.start[*it + 1];
    const int64_t left = first_n - runs.before[it - order];
    if (begin >= keys.end || left <= 0) return;
    toggle({begin, std::min(end, begin + left)}, bit, keys);
  }
}

void Classifier::toggle_atom(const KeyAtom& atom, uint64_t bit,
                             const Group& group, Interval keys) {
  const Piece& piece = *group.first;
  switch (atom.atom) {
    case Atom::prefix:
      toggle({0, row_->prefix}, bit, keys);
      break;
    case Atom::chunk: {
      const int64_t begin = floor_div(piece.begin, atom.n) * atom.n;
      toggle({begin, begin + atom.n}, bit, keys);
      break;
    }
    case Atom::documents:
      toggle_places(runs_, document_of(piece), bit, kFar, keys);
      break;
    case Atom::segments:
      toggle({runs_.start[piece.run], runs_.start[piece.run + 1]}, bit, keys);
      break;
    case Atom::sink:
      if (program_->names.segments) {
        const int64_t begin = runs_.start[piece.run];
        const int64_t end = runs_.start[piece.run + 1];
        toggle({begin, std::min(end, begin + atom.n)}, bit, keys);
      } else if (program_->names.documents) {
        toggle_places(runs_, document_of(piece), bit, atom.n, keys);
      } else {
        toggle({0, atom.n}, bit, keys);
      }
      break;
    case Atom::blocks: {
      const int32_t* picks =
          bound_.picks_of(batch_row_, head_, piece.begin - row_->q_offset);
      picked_.clear();
      for (int64_t i = 0; i < bound_.picks_k; ++i) {
        if (picks[i] < 0) continue;
        picked_.push_back({picks[i] * atom.n, (picks[i] + 1) * atom.n});
      }
      std::sort(picked_.begin(), picked_.end(),
                [](Interval l, Interval r) { return l.begin < r.begin; });
      for (size_t i = 0; i < picked_.size(); ++i) {
        if (i > 0 && picked_[i].begin == picked_[i - 1].begin) continue;
        toggle(picked_[i], bit, keys);
      }
      break;
    }
    case Atom::same: {
      const IdRuns& ids = same_runs_[static_cast<size_t>(atom.n)];
      const int64_t run = run_at(ids, piece.begin);
      if (ids.id[static_cast<size_t>(run)] < 0) break;
      toggle_places(ids, places_of_run(ids, run), bit, kFar, keys);
      break;
    }
    case Atom::tree:
      toggle_all(atom.n == 0 ? shared_path_ : own_path(piece), bit, keys);
      break;
    default:
      break;
  }
}

void Classifier::add_strip(const Group& group, Interval strip, uint64_t state) {
  const uint64_t bands = program_->legal_bands(state);
  if (bands == 0) return;
  // A strip of the query's own document holds no negative id.
  if (!ids_veto_ || !runs_.any_negative || (state & own_bits_) != 0) {
    add_bands(group, strip, bands);
    return;
  }
  auto it = std::partition_point(
      runs_.negative.begin(), runs_.negative.end(),
      [&](int32_t run) { return runs_.start[run + 1] <= strip.begin; });
  int64_t at = strip.begin;
  for (; it != runs_.negative.end(); ++it) {
    const int64_t begin = runs_.start[*it];
    if (begin >= strip.end) break;
    if (begin > at) add_bands(group, {at, begin}, bands);
    at = runs_.start[*it + 1];
  }
  if (at < strip.end) add_bands(group, {at, strip.end}, bands);
}

void Classifier::add_bands(const Group& group, Interval strip, uint64_t bands) {
  const int64_t nearest = strip.begin - (group.end() - 1);
  const int64_t farthest = strip.end - 1 - group.begin();
  while (bands != 0) {
    const int first = std::countr_zero(bands);
    const int count = std::countr_one(bands >> first);
    const int64_t from = program_->band_begin(first);
    const int64_t to = program_->band_end(first + count - 1);
    bands =
        first + count == 64 ? 0 : bands >> (first + count) << (first + count);
    if (from > farthest || to <= nearest) continue;
    if (from <= nearest && farthest < to) {
      parts_.add_rectangle(strip, group.queries);
      continue;
    }
    add_pieces(group, strip, from, to);
  }
}

// If there are many pieces, those that see the whole strip form one rectangle;
// only pieces cut by a bound are added one by one.
void Classifier::add_pieces(const Group& group, Interval strip, int64_t from,
                            int64_t to) {
  const auto trapezoids = [&](const Piece* first, const Piece* last) {
    for (const Piece* p = first; p < last; ++p) {
      parts_.add_trapezoid({p->begin, p->end}, strip, from, to);
    }
  };
  if (group.last - group.first <= kFewPieces) {
    trapezoids(group.first, group.last);
    return;
  }
  // The first piece that begins (or ends) after `position`.
  const auto begins = [&](int64_t position) {
    return std::partition_point(group.first, group.last, [&](const Piece& p) {
      return p.begin <= position;
    });
  };
  const auto ends = [&](int64_t position) {
    return std::partition_point(group.first, group.last, [&](const Piece& p) {
      return p.end - 1 <= position;
    });
  };
  const Piece* const some = ends(strip.begin - to);
  const Piece* const all = begins(strip.end - 1 - to);
  const Piece* const all_end = ends(strip.begin - from);
  const Piece* const some_end = begins(strip.end - 1 - from);
  if (all >= all_end) {
    trapezoids(some, some_end);
    return;
  }
  trapezoids(some, all);
  const Piece& last = all_end[-1];
  parts_.add_rectangle(strip,
                       last.before + last.end - last.begin - all->before);
  trapezoids(all_end, some_end);
}

}  // namespace tessera::mask
