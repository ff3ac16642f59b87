// lanes/xla/arrays.cc: facts and worklist, padded to the program's sizes.
#include "lanes/xla/arrays.h"

#include <algorithm>

#include "base/fail.h"
#include "mask/canonical.h"
#include "mask/runs.h"
#include "plan/steps.h"

namespace tessera::xla {
namespace {

constexpr int32_t kNone = -1;  // the id of padding, a slot without a pick

// Keeps the distance of any key from any position within 32 bits.
constexpr int64_t kMaxPosition = int64_t{1} << 30;

Result<void> check_positions(const Shape& s, const mask::Bound& bound) {
  for (const mask::BoundRow& row : bound.rows) {
    const int64_t first = row.q_offset;
    const int64_t last = row.q_offset + s.q_len;
    if (first >= -kMaxPosition && last <= kMaxPosition) continue;
    return over_limit("xla", "positions must be within +-{}, found {} to {}",
                      kMaxPosition, first, last);
  }
  return {};
}

// Room for every batch row of the program, filled with `empty`.
std::vector<int32_t> room(const Type& type, int32_t empty) {
  return std::vector<int32_t>(static_cast<size_t>(type.elements()), empty);
}

// The ids, segments and ranks of the keys of one batch row.
class KeyNumbers {
 public:
  KeyNumbers(const Shape& s, const mask::Bound& bound,
             const mask::BoundRow& row)
      : ids_(row.ids), kv_len_(bound.kv_len) {
    mask::find_runs(ids_, kv_len_, runs_);
    if (s.ranks_documents()) mask::link_runs(runs_);
  }

  int32_t id(int64_t k) const { return ids_[k]; }

  // Calls f(k, run) for every key.
  template <class F>
  void for_each(F f) const {
    for (size_t r = 0; r < runs_.id.size(); ++r) {
      for (int64_t k = runs_.start[r]; k < runs_.start[r + 1]; ++k) f(k, r);
    }
  }
  int32_t segment(size_t run) const {
    return runs_.id[run] < 0 ? kNone : static_cast<int32_t>(run);
  }
  int32_t segment_rank(int64_t k, size_t run) const {
    return static_cast<int32_t>(k - runs_.start[run]);
  }
  int32_t document_rank(int64_t k, size_t run) const {
    const int32_t earlier =
        runs_.distinct ? 0
                       : runs_.before[static_cast<size_t>(runs_.place[run])];
    return earlier + segment_rank(k, run);
  }

 private:
  const int32_t* ids_;
  int64_t kv_len_;
  mask::IdRuns runs_;
};

class Maker {
 public:
  Maker(const Shape& s, const mask::Bound& bound) : s_(s), bound_(bound) {
    for (const Argument& a : arguments_of(s)) {
      if (a.type.element != Element::i32) continue;
      const bool padded_with_none = a.name.starts_with("q_") ||
                                    a.name.starts_with("k_") ||
                                    a.name == "picks";
      arrays_[a.name] = room(a.type, padded_with_none ? kNone : 0);
    }
  }

  Result<Integers> make(const Plan& plan) {
    add_rows();
    add_bounds();
    if (s_.method == XlaMethod::worklist) {
      if (auto e = add_steps(plan); !e) return e.error();
    }
    for (int64_t b = 0; b < bound_.batch; ++b) {
      if (s_.names_documents() || s_.names_segments()) add_ids(b);
      if (s_.names_tree()) add_tree(b);
      for (int64_t i = 0; i < kSameNames; ++i) {
        if (s_.names_same(i)) add_same(b, i);
      }
      if (s_.picks_k > 0) add_picks(b);
    }
    return std::move(arrays_);
  }

 private:
  void add_rows() {
    std::vector<int32_t>& rows = arrays_["rows"];
    for (int64_t b = 0; b < bound_.batch; ++b) {
      const mask::BoundRow& row = bound_.rows[static_cast<size_t>(b)];
      const auto set = [&](RowFact fact, int64_t value) {
        rows[static_cast<size_t>(b * kRowFacts + static_cast<int64_t>(fact))] =
            static_cast<int32_t>(value);
      };
      set(RowFact::q_offset, row.q_offset);
      set(RowFact::prefix, row.prefix);
      set(RowFact::valid, row.valid);
      set(RowFact::q_end, row.q_end);
    }
  }

  void add_bounds() {
    if (s_.window_bounds == 0) return;
    std::vector<int64_t> bounds;
    for (const Mask& mask : s_.masks)
      mask::append_window_bounds(mask.expr, bounds);
    std::transform(bounds.begin(), bounds.end(), arrays_["bounds"].begin(),
                   [](int64_t n) { return static_cast<int32_t>(n); });
  }

  Result<void> add_steps(const Plan& plan) {
    auto packed = plan::steps_of_plan(plan, false);
    if (!packed) return packed.error();
    return write_steps(*packed, arrays_);
  }

  // Batch row b of an array of `length` tokens a row; null if no mask needs it.
  int32_t* row_of(const std::string& array, int64_t b, int64_t length) {
    const auto at = arrays_.find(array);
    return at == arrays_.end() ? nullptr : at->second.data() + b * length;
  }

  void add_ids(int64_t b) {
    const mask::BoundRow& row = bound_.rows[static_cast<size_t>(b)];
    const KeyNumbers keys(s_, bound_, row);
    int32_t* const documents = row_of("k_documents", b, s_.kv_len);
    int32_t* const segments = row_of("k_segments", b, s_.kv_len);
    int32_t* const document_ranks = row_of("k_document_ranks", b, s_.kv_len);
    int32_t* const segment_ranks = row_of("k_segment_ranks", b, s_.kv_len);
    keys.for_each([&](int64_t k, size_t run) {
      if (documents) documents[k] = keys.id(k);
      if (segments) segments[k] = keys.segment(run);
      if (document_ranks) document_ranks[k] = keys.document_rank(k, run);
      if (segment_ranks) segment_ranks[k] = keys.segment_rank(k, run);
    });
    int32_t* const q_documents = row_of("q_documents", b, s_.q_len);
    int32_t* const q_segments = row_of("q_segments", b, s_.q_len);
    for (int64_t q = 0; q < row.q_end; ++q) {
      const int64_t position = q + row.q_offset;
      if (q_documents) {
        q_documents[q] = row.q_ids ? row.q_ids[q] : keys.id(position);
      }
      if (!q_segments) continue;
      // A query has the segment of the key at its position.
      q_segments[q] = segments[position];
    }
  }

  void add_tree(int64_t b) {
    const mask::Tree& tree = bound_.trees[static_cast<size_t>(b)];
    int32_t* const out = row_of("k_tree_ends", b, s_.kv_len);
    for (size_t r = 0; r < tree.end.size(); ++r) {
      std::fill(out + tree.start[r], out + tree.start[r + 1], tree.end[r]);
    }
  }

  void add_same(int64_t b, int64_t name) {
    const mask::BoundRow& row = bound_.rows[static_cast<size_t>(b)];
    const int32_t* const ids = row.same[static_cast<size_t>(name)];
    int32_t* const keys = row_of("k_" + mask::same_fact(name), b, s_.kv_len);
    for (int64_t k = 0; k < bound_.kv_len; ++k) keys[k] = std::max(ids[k], -1);
    int32_t* const queries = row_of("q_" + mask::same_fact(name), b, s_.q_len);
    for (int64_t q = 0; q < row.q_end; ++q) {
      const int32_t id = ids[q + row.q_offset];
      queries[q] = id < 0 ? -2 : id;
    }
  }

  void add_picks(int64_t b) {
    int32_t* out = row_of("picks", b, s_.pick_heads * s_.q_len * s_.picks_k);
    for (int64_t head = 0; head < s_.pick_heads; ++head) {
      for (int64_t q = 0; q < bound_.q_len; ++q) {
        const int32_t* from =
            bound_.picks +
            ((b * s_.pick_heads + head) * bound_.q_len + q) * bound_.picks_k;
        std::copy_n(from, bound_.picks_k,
                    out + (head * s_.q_len + q) * s_.picks_k);
      }
    }
  }

  const Shape& s_;
  const mask::Bound& bound_;
  Integers arrays_;
};

}  // namespace

Result<Integers> make_integers(const Shape& s, const mask::Bound& bound,
                               const Plan& plan) {
  if (auto e = check_positions(s, bound); !e) return e.error();
  return Maker(s, bound).make(plan);
}

Result<void> write_steps(const Steps& steps, Integers& to) {
  std::vector<int32_t>& words = to["steps"];
  if (steps.steps.size() > words.size()) {
    return over_limit("xla", "steps must fit the program's {}, found {}",
                      words.size(), steps.steps.size());
  }
  std::transform(steps.steps.begin(), steps.steps.end(), words.begin(),
                 [](Step s) { return static_cast<int32_t>(s.word); });
  std::vector<int32_t>& range = to["range"];
  std::fill(range.begin(), range.end(),
            static_cast<int32_t>(steps.range.back()));
  std::transform(steps.range.begin(), steps.range.end(), range.begin(),
                 [](uint32_t n) { return static_cast<int32_t>(n); });
  return {};
}

}  // namespace tessera::xla
