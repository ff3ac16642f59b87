// lanes/mosaic/backward_parts.h: what writes the backward kernel. backward.cc
// says what it is, and has the walk; its parts have a file each.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lanes/mosaic/backward.h"
#include "lanes/mosaic/parts.h"

namespace tessera::mosaic {

// Tiles of queries on their way in `prepare`.
int64_t row_ring_size(const KernelShape& s);
// Of passes' queries and bitmaps.
inline constexpr int64_t kPassRing = 4;
static_assert(kPassesAhead < kPassRing &&
              std::has_single_bit(static_cast<uint64_t>(kPassRing)));

// Of tiles of keys.
int64_t column_ring_size(const KernelShape& s);

// K' has an array of its own: where a tile of K lies otherwise, or may have to
// be another one.
inline bool keeps_keys(const KernelShape& s) {
  return !tokens_last(s.head_dim) || s.any_numbers;
}

class Backward : Parts {
 public:
  explicit Backward(const KernelShape& shape)
      : Parts(shape, backward_arguments(shape)),
        rows_(shape.q_len / shape.block_q),
        group_(shape.heads / shape.kv_heads),
        heads_(shape.heads_per_pass),
        kv_heads_(shape.kv_heads_per_pass()) {}

  std::string write() {
    return function("tessera_backward", Grid::lists, [this] { batch_row(); });
  }

 private:
  Value in_slots(const Value& n, int64_t ring) {
    return w_.bit_and(n, number(ring - 1));
  }
  Value column_slot(const Value& column) {
    return in_slots(column, column_ring_size(s_));
  }
  // Of the cap, where its tanh is t.
  Value slope(const Value& t) {
    const Value one = w_.splat(w_.real(1), t.type.shape);
    return w_.sub(one, w_.mul(t, t));
  }
  Value with_head(const Value& n, int64_t h) {
    return h == 0 ? n : w_.add(n, number(h));
  }
  // What one of a pass's heads has of an array with as many rows for each.
  Value load_of(const char* name, int64_t heads, int64_t h);
  void store_of(const Value& value, const char* name, int64_t heads, int64_t h);
  // Of a tile of queries, one head's line.
  Value line_of(const char* name, const Value& r, int64_t h);
  // Heads of a group are in one pass, or passes take turns.
  bool takes_turns() const { return group_ > heads_; }
  // Where dK' and dV' of a tile of keys are summed.
  Value sum_slot(const Value& column, int64_t kv = 0) {
    if (s_.in_chunks()) return of_head(column_slot(column), kv_heads_, kv);
    return takes_turns() ? column : number(kv);
  }
  int64_t kv_of(int64_t h) const { return h * kv_heads_ / heads_; }
  Value kv_head(const Value& head) {
    return group_ == 1 ? head : w_.div(head, number(group_));
  }
  // Of the heads that share this one's keys, whether it is number n.
  Value is_in_group(const Value& head, const Value& kv, int64_t n) {
    const Value first = times(kv, group_);
    return w_.compare(Compare::equal, head, w_.add(first, number(n)));
  }

  // How many columns, and with chunks parts of their sums, went out.
  using Done = std::vector<Value>;

  // A list's chunks (shape.h) one after another: what is known of the one in
  // hand, and what becomes of a column's sums.
  struct Chunk {
    Value number;
    Value steps;  // its number among those of all lists
    Value first_row, rows, first_column, begins, ends;
  };
  void chunks();
  void begin_chunk(const Value& chunk);
  Value chunk_word(int64_t at);
  Value is_not_in_group(const Value& head, int64_t n);
  Value go_on(const Value& head, const Value& column);
  Value stay(const Value& head, const Value& column);
  Value key_sums_so_far(const char* array, const Value& column);
  void fetch_sums(const char* region, const Value& head, const Value& column);
  void begin_sums(const Value& head, const Value& column);
  void send_sums(const Value& column, const Value& sent);
  void wait_parts();
  Done end_column(const Value& head, const Value& column, const Value& ends,
                  std::span<const Value> done);
  // A row's number where scratch has one of each.
  Value in_scratch(const Value& row) {
    return s_.in_chunks() ? w_.sub(row, chunk_.first_row) : row;
  }
  // Columns follow each other from 0, or from where the list says.
  bool begins_late() const { return s_.in_parts || s_.in_chunks(); }
  Value first_column() {
    return s_.in_chunks() ? chunk_.first_column : rows_word(1);
  }

  // Rows, tiles of queries, are met by turns: all of them, or those of a chunk;
  // of a call in parts those of them that it is told.
  struct Row {
    Value number, place;  // and where scratch has it
    // Of a call in parts: whether one before had it, and none after has it.
    std::optional<Value> begins, goes_on, ends;
  };
  Value first_rows_word();
  Value rows_word(int64_t at);
  Value rows();
  Row row_at(const Value& turn);

  void fetch_row(const char* region, const Value& head, const Value& turn);
  void prepare(const Value& head, const Value& turn);
  struct RowIds {
    Value ids, is_seen;
  };
  void mark_row(const Row& row, const Value& slot);
  void prepare_head(const Value& first_head, const Value& turn, const Row& row,
                    int64_t h, const RowIds& row_ids);
  // dQ' of a row, at 0; and where what calls so far summed of it waits.
  void clear_sums(const Value& r);
  Value sums_so_far(const Value& head, const Value& r);
  // Of a tile of queries: their ids, which of them no veto takes, the
  // log-sum-exp, sum(out dout), and h where there is one.
  struct SinkRow {
    Value ids, is_seen, lse, dot;
    std::optional<Value> dlse;
  };
  Value base_with_sink(const SinkRow& row);
  void clear_sinks();
  void add_sink(const Value& head, const Row& at, const SinkRow& row,
                int64_t h);
  void finish_sink(const Value& head, int64_t h);
  Value place_of_sink(const Value& head);
  // An array, its ring, and the dim of its vectors; 0: it has a number a token.
  struct OfTokens {
    const char *array, *ring;
    int64_t dim;
  };
  std::array<OfTokens, 2> of_keys() const {
    return {{{"k", "k_ring", s_.head_dim}, {"v", "v_ring", s_.v_head_dim}}};
  }
  void fetch_column(const char* region, const char* sums_region,
                    const Value& head, const Value& column);
  Value key_ids(const Value& column, int64_t dim);
  void begin_column(const Value& head, const Value& column);
  void clear_keys(const Value& column);
  void repair_keys(const Value& slot);
  // All its pairs are legal; or some are; or some are, and rows are marked.
  enum class PassKind : uint8_t { full, partial, spoiled };
  static bool is_masked(PassKind kind) { return kind != PassKind::full; }
  Value has_marked_row(const Value& at);
  void body(const Value& pass, const Value& at, const Value& column,
            PassKind kind);
  // One of a pass; where it is masked the ids of its queries, and which of its
  // pairs are legal, once that is known.
  struct PassTile {
    Value step, row, place;
    std::optional<Value> ids, legal;
  };
  struct HeadTiles {
    std::vector<Value> queries, douts, ps, dss;
  };
  // A head's K' of a tile of keys.
  Value upright_keys(const Value& column, int64_t h);
  // As a product with keys takes them, contracting `dim`; and upright.
  struct Queries {
    Value operand;
    int32_t dim;
    Value upright;
  };
  Value legal_tile(const Value& column, const PassTile& tile, int64_t t);
  Queries queries_of(const char* ring, int64_t dim, const Value& pass,
                     int64_t h, int64_t t, bool masked, const PassTile& tile);
  Value take_strays(Queries& q, Queries& g, const Value& most);
  HeadTiles gradients(const Value& pass, const Value& column,
                      const std::optional<Value>& bits_slot, PassKind kind,
                      int64_t h, std::vector<PassTile>& tiles);
  void add_products(const Value& column, int64_t h,
                    const std::vector<PassTile>& tiles, const HeadTiles& own);
  void fetch_pass(const char* region, const char* bits_region,
                  const Value& head, const Value& pass, const Value& at);
  void wait_pass(const Value& pass);
  void wait_column();
  void finish_column(const Value& head, const Value& column,
                     const Value& columns_done);
  void wait_row(const Value& sent);
  void finish_row(const Value& head, const Row& row, const Value& sent);
  void finish_rows(const Value& head);
  void finish_parts(const Value& head);
  using Body = std::function<void(const Value&)>;
  void for_each(const Value& end, const Body& body);
  Value pass_at(const Value& i);
  Value passes();
  void first_passes(const Value& head, const Value& passes);
  Done walk(const Value& head, const Value& columns, const Value& passes,
            Done done);
  Done walk_pages(const Value& head, const Value& columns, Done done);
  Value columns_of_list();
  void head(const Value& head, const Value& columns);
  void batch_row();

  // The arrays of a tile of queries, with their rings.
  std::vector<OfTokens> row_arrays() const;

  int64_t rows_;
  int64_t group_;
  int64_t heads_, kv_heads_;  // of a pass
  Chunk chunk_;
};

}  // namespace tessera::mosaic
