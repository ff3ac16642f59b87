// lanes/mosaic/backward_parts.h: the class that writes the backward kernel.
// backward.cc documents the kernel and has its main loop; backward_rows.cc,
// backward_columns.cc, backward_pass.cc and backward_chunks.cc have the parts.
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

// Slots of the rings through which `prepare` reads tiles of queries.
int64_t row_ring_size(const KernelShape& s);
// Slots of the rings of a pass's queries and bitmaps.
inline constexpr int64_t kPassRing = 4;
static_assert(kPassesAhead < kPassRing &&
              std::has_single_bit(static_cast<uint64_t>(kPassRing)));

// Slots of the rings of tiles of keys.
int64_t column_ring_size(const KernelShape& s);

// Whether K' has scratch of its own: where K must be transposed, or where
// strays in K' are zeroed while K keeps them.
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
  // Derivative of the softcap, where t is its tanh.
  Value slope(const Value& t) {
    const Value one = w_.splat(w_.real(1), t.type.shape);
    return w_.sub(one, w_.mul(t, t));
  }
  Value with_head(const Value& n, int64_t h) {
    return h == 0 ? n : w_.add(n, number(h));
  }
  // Head h's rows of a scratch array that has as many rows for each head.
  Value load_of(const char* name, int64_t heads, int64_t h);
  void store_of(const Value& value, const char* name, int64_t heads, int64_t h);
  // Head h's line [1, block_q] of the tile of queries at place r.
  Value line_of(const char* name, const Value& r, int64_t h);
  // Whether the heads that share keys are too many for one pass, so that passes
  // take turns adding to the same dK' and dV'.
  bool takes_turns() const { return group_ > heads_; }
  // The slot in which dK' and dV' of a tile of keys are summed.
  Value sum_slot(const Value& column, int64_t kv = 0) {
    if (s_.in_chunks()) return of_head(column_slot(column), kv_heads_, kv);
    return takes_turns() ? column : number(kv);
  }
  int64_t kv_of(int64_t h) const { return h * kv_heads_ / heads_; }
  Value kv_head(const Value& head) {
    return group_ == 1 ? head : w_.div(head, number(group_));
  }
  // Whether `head` is number n among the heads that share its keys.
  Value is_in_group(const Value& head, const Value& kv, int64_t n) {
    const Value first = times(kv, group_);
    return w_.compare(Compare::equal, head, w_.add(first, number(n)));
  }

  // Carried by loops: columns that went out and, with chunks, partial sums of
  // columns that did.
  using Done = std::vector<Value>;

  // Values of the current chunk of a list (shape.h). The functions after it
  // also say where a column's sums come from and where they go.
  struct Chunk {
    Value number;
    Value steps;  // its number among the chunks of all lists
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
  // A row's index in scratch arrays that have one entry a row.
  Value in_scratch(const Value& row) {
    return s_.in_chunks() ? w_.sub(row, chunk_.first_row) : row;
  }
  // Whether the first column may be another than 0.
  bool begins_late() const { return s_.in_parts || s_.in_chunks(); }
  Value first_column() {
    return s_.in_chunks() ? chunk_.first_column : rows_word(1);
  }

  // A row is a tile of queries. `turn` counts the rows to walk: all, a chunk's
  // or, in a call in parts, the rows that it is told (shape.h).
  struct Row {
    Value number, place;  // place: index in scratch
    // In a call in parts: no earlier call has the row; an earlier call has it;
    // no later call has it.
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
  // Sets dQ' of row r to 0. sums_so_far: dQ' in HBM, as earlier calls left it.
  void clear_sums(const Value& r);
  Value sums_so_far(const Value& head, const Value& r);
  // Lines of a tile of queries: ids, whether no veto takes them, the
  // log-sum-exp, sum(out * dout), and the gradient of the log-sum-exp if there
  // is one.
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
  // An array, its ring, and the dim of its vectors; 0: one number per token.
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
  // full: all pairs are legal. partial: some are. spoiled: some are, and a row
  // of the pass is marked as having strays (mark_row).
  enum class PassKind : uint8_t { full, partial, spoiled };
  static bool is_masked(PassKind kind) { return kind != PassKind::full; }
  Value has_marked_row(const Value& at);
  void body(const Value& pass, const Value& at, const Value& column,
            PassKind kind);
  // A tile of a pass. In a masked pass `ids` are its queries' ids; `legal` says
  // which pairs are legal, once the first head has computed it.
  struct PassTile {
    Value step, row, place;
    std::optional<Value> ids, legal;
  };
  struct HeadTiles {
    std::vector<Value> queries, douts, ps, dss;
  };
  // A head's K' of a tile of keys.
  Value upright_keys(const Value& column, int64_t h);
  // A tile of queries: `operand` as products with keys take it, contracting
  // `dim`, and `upright` as [dim, queries].
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
