// lanes/mosaic/backward.cc: block-sparse gradients of attention for one TPU
// core.
//
// Mathematics. g = dout, h the gradient of the log-sum-exp (0 without one), and
// with c = scale * log2(e), for one head, a tile of keys and its active tiles
// of queries:
//
//   S'  = K Q'                  keys down the sublanes, queries along the lanes
//   P'  = 2^(c S' - log2(e) lse)        the probabilities again; 0 if illegal
//   dP' = V g'
//   dS' = P' * (dP' - D)                D = sum(out * g) - h, one per query
//   dV' += g' bf16(P')     dK' += Q' bf16(dS')     dQ' += K' bf16(dS')
//
// At the end dK = scale dK'', and dQ likewise. With a softcap t
//
//   S'  = tanh(scale / t K Q')      c = t log2(e)
//   dS' = P' * (dP' - D) * (1 - S'^2)
//
// because t tanh(x / t) has the derivative 1 - tanh^2. For an illegal pair the
// derivative is that of the tanh before it became -inf, so that dS' is 0 and,
// with finite numbers, not NaN. All three sums are float32 and transposed: so
// P' and dS' are the operands that stay in the matrix unit, and what streams
// through it has as many rows as the head dim.
//
// One kernel computes all gradients. It takes `heads_per_pass` heads of one
// list at once: where tiles lie and which pairs are legal is computed once for
// them, and their products do not wait for each other, so that passes over
// small tiles fill the matrix unit too. For these heads the kernel first walks
// the tiles of queries (`prepare`): out and g come in, D and the log-sum-exp
// stay in vector memory, and dQ' starts at 0 beside them. Then it walks the
// transposed list, one tile of keys after another: K and V come in once
// (`column`), a pass (`full`, `partial`) takes `tiles_per_pass` of the column's
// active tiles, whose Q and g were fetched kPassesAhead passes before, and dK
// and dV go out (`finish_column`). At the end dQ goes out (`finish_row`).
//
// A pass needs Q and g twice: for S' and dP', and transposed for dK' and dV'. A
// partial pass transposes them, zeroes vetoed queries and uses the result for
// both; a full pass, which has no vetoed queries, takes them as they lie for S'
// and dP', so that these products need not wait for the transposes.
//
// If all heads that share keys fit one pass, they are in one pass. If not,
// passes take turns: dK' and dV' of all keys stay in vector memory too, and the
// heads of a group add to them in turn.
//
// Vector memory: 4 bytes per query, head of a pass and dim, and 64 per query;
// where passes take turns, also 4 per key and dim of K and V. Every sum has a
// fixed order: head by head, each in the list's order.
//
// Where bitmaps say which pairs are legal, a pass's bitmaps are fetched with
// its queries.
//
// A sink logit z has the gradient sum(p (h - sum(out * g))) over all queries,
// with p = e^(z - lse), or 1 for a query without a key. `prepare` sums it:
// first the queries of a lane, then the lanes, then batch rows, which the grid
// takes in order. The ids say which queries are real.
//
// On a mesh a pass may be several calls (shards.h), each for other columns.
// Such a call is told its first column and the rows that its columns need; it
// does not touch other rows. If a row has columns in several calls, its dQ'
// waits between them unchanged in HBM (`dq_so_far`), so that the sum is the
// same as in one call.
//
// If dQ' of a head is too large, a list is cut into chunks of consecutive tiles
// of queries (`chunk_rows`), taken one after another for every head: only the
// chunk's tiles are prepared, walk their columns, and go out. If a column is in
// another chunk too, its dK' and dV' wait unchanged in HBM (`dk_so_far`,
// `dv_so_far`) and come in with its K and V; the same between heads that take
// turns. The last chunk and head round them once. So a column's sums are added
// head by head, for each head chunk by chunk, and in a chunk in the list's
// order. A call on a mesh has chunks too, of its own columns: each chunk is
// told its rows, and each row begins or continues, and ends or waits, as in a
// call without chunks.
//
// With `any_numbers`, strays (NaN and infinities) reach only what they are
// legal for. `column` takes them out of K' and V; the scores of such keys are
// not finite. `prepare` marks tiles of queries whose Q, g or log-sum-exp has a
// stray. A masked pass with a marked tile (`spoiled`) takes strays out of Q and
// g, and sets the log-sum-exp of such queries to NaN. So legal pairs become NaN
// through their P' or through D. dS' of illegal pairs is set to 0, and in
// spoiled passes P' too.
//
// Vetoed tokens may hold anything. Partial passes zero vetoed queries,
// `prepare` their log-sum-exp and D, `column` vetoed keys; so no product meets
// such numbers, and P' is 0 where a pair is illegal. For the same reason a
// query without a key has P' = 0, whatever replaces its log-sum-exp of -inf.
#include "lanes/mosaic/backward.h"

#include <algorithm>

#include "lanes/mosaic/backward_parts.h"
#include "lanes/mosaic/program.h"

namespace tessera::mosaic {

void Backward::for_each(const Value& end, const Body& body) {
  w_.for_each(w_.constant(0), end, {},
              [&](const Value& i, std::span<const Value>) {
                body(i);
                return std::vector<Value>{};
              });
}

Value Backward::pass_at(const Value& i) {
  return w_.add(begin_, times(i, s_.tiles_per_pass));
}

Value Backward::passes() {
  return w_.div(w_.sub(end_, begin_), number(s_.tiles_per_pass));
}

void Backward::first_passes(const Value& head, const Value& passes) {
  for_each(w_.min(passes, number(kPassesAhead)), [&](const Value& i) {
    fetch_pass("first_fetch", "first_bits", head, i, pass_at(i));
  });
}

// The loop over all passes of the loaded steps, whose first copies have
// started. Returns `done` plus what the loop sent out.
Backward::Done Backward::walk(const Value& head, const Value& columns,
                              const Value& passes, Done done) {
  const Value zero = w_.constant(0);
  return w_.for_each(
      zero, passes, std::move(done),
      [&](const Value& i, std::span<const Value> c) -> Done {
        const Writer::Region pass(w_, "pass");
        const Value at = pass_at(i);
        const Value later_pass = w_.add(i, number(kPassesAhead));
        w_.if_then(less(later_pass, passes), [&] {
          fetch_pass("fetch", "bits", head, later_pass, pass_at(later_pass));
        });
        wait_pass(i);
        const Value step = word(at);
        const Value column = row_of(step);
        w_.if_then(is_true(is_first(step)), [&] {
          const Value later = w_.add(column, number(s_.fetch_ahead));
          w_.if_then(less(later, columns), [&] {
            fetch_column("fetch_column", "fetch_sums", head, later);
          });
          begin_column(head, column);
        });
        const Value full = all_full(at);
        w_.if_else(
            full, [&] { body(i, at, column, PassKind::full); },
            [&] {
              const auto partial = [&] {
                body(i, at, column, PassKind::partial);
              };
              if (!s_.any_numbers) return partial();
              const Writer::Region masked(w_, "masked");
              const Value spoiled = has_marked_row(at);
              w_.if_else(
                  spoiled, [&] { body(i, at, column, PassKind::spoiled); },
                  partial);
            });
        Value ends = is_last(word(at, s_.tiles_per_pass - 1));
        if (s_.in_chunks()) return end_column(head, column, ends, c);
        if (takes_turns()) {
          const Value kv = kv_head(head);
          const Value leaves = is_in_group(head, kv, group_ - heads_);
          ends = w_.select(leaves, ends, zero);
        }
        w_.if_then(is_true(ends), [&] { finish_column(head, column, c[0]); });
        return {w_.add(c[0], ends)};
      });
}

// The same, one page after another. Sums stay in memory, so a column may
// continue on the next page.
Backward::Done Backward::walk_pages(const Value& head, const Value& columns,
                                    Done done) {
  const Value steps = s_.in_chunks() ? chunk_.steps : list_;
  return w_.for_each(w_.constant(0), number(s_.pages), std::move(done),
                     [&](const Value& page, std::span<const Value> c) -> Done {
                       const Value number_of_page = page_number(steps, page);
                       end_ = page_end(number_of_page);
                       load_page(number_of_page);
                       const Value own = passes();
                       first_passes(head, own);
                       return walk(head, columns, own, {c.begin(), c.end()});
                     });
}

void Backward::head(const Value& head, const Value& columns) {
  const Writer::Region named(w_, "head");
  std::optional<Value> all_passes;
  if (s_.page == 0) all_passes = passes();
  w_.comment("the first copies of passes are on their way while rows come");
  const Value own = begins_late() ? w_.sub(columns, first_column()) : columns;
  for_each(w_.min(own, number(s_.fetch_ahead)), [&](const Value& c) {
    const Value at = begins_late() ? w_.add(first_column(), c) : c;
    fetch_column("first_columns", "first_sums", head, at);
  });
  if (all_passes) first_passes(head, *all_passes);
  Value ahead = number(std::min(rows_, rows_ahead(heads_)));
  if (s_.in_parts || s_.in_chunks()) ahead = w_.min(ahead, rows());
  for_each(ahead, [&](const Value& i) { fetch_row("first_rows", head, i); });
  if (s_.in_parts && s_.has_sinks) clear_sinks();
  for_each(rows(), [&](const Value& i) { prepare(head, i); });
  for (int64_t h = 0; s_.has_sinks && h < heads_; ++h) {
    finish_sink(with_head(head, h), h);
  }

  w_.comment("every tile of keys, and its passes");
  Done done(s_.in_chunks() ? 2 : 1, w_.constant(0));
  done = all_passes ? walk(head, columns, *all_passes, std::move(done))
                    : walk_pages(head, columns, std::move(done));
  w_.if_then(is_true(done[0]), [&] { wait_column(); });
  if (s_.in_chunks()) w_.if_then(is_true(done[1]), [&] { wait_parts(); });

  w_.comment("dQ of the head");
  if (s_.in_parts) {
    finish_parts(head);
  } else {
    finish_rows(head);
  }
  for (int64_t h = 0; s_.has_sinks && h < heads_; ++h) {
    w_.wait_copy(w_.argument("sink_copies"),
                 in_ring("sink_sums", with_head(head, h)));
  }
}

// The end of the list's columns. Columns are consecutive, from 0 or from the
// first that the call is told, and each has a step.
Value Backward::columns_of_list() {
  if (s_.in_chunks()) return chunk_word(kChunkEnd);
  if (s_.page == 0) {
    const Value last = word(w_.sub(end_, w_.constant(1)));
    return w_.add(row_of(last), w_.constant(1));
  }
  const Value columns = w_.load_scalar(
      scalars("range"), w_.add(list_, number(s_.lists() * s_.pages)));
  return s_.in_parts ? w_.add(first_column(), columns) : columns;
}

void Backward::batch_row() {
  const Writer::Region named(w_, "batch_row");
  copy_ids();
  if (s_.in_chunks()) return chunks();
  const Value columns = columns_of_list();
  w_.for_each(w_.constant(0), number(s_.heads_of_list() / heads_), {},
              [&](const Value& i, std::span<const Value>) {
                head(head_number(of_head(i, heads_, 0)), columns);
                return std::vector<Value>{};
              });
}

namespace {

using Arguments = std::vector<Argument>;

// Element type of dK and dV as they go out: on a mesh float32, as the sums of
// several devices are rounded only after they are added.
Element element_of_sums(const KernelShape& s) {
  return s.wide_sums ? Element::f32 : element_of(s);
}

void add(Arguments& to, const Arguments& more) {
  to.insert(to.end(), more.begin(), more.end());
}

Arguments backward_results(const KernelShape& s) {
  constexpr Element kF32 = Element::f32;
  const Element of_sums = element_of_sums(s);
  Arguments out = {
      of_tokens(s, "dq", element_of(s), s.heads, s.q_len, s.head_dim)};
  add_of_keys(s, "dk", of_sums, s.head_dim, out);
  add_of_keys(s, "dv", of_sums, s.v_head_dim, out);
  if (s.has_sinks) {
    out.push_back(in_hbm("dsink_logits", kF32, {s.heads, 1, kLanes}));
  }
  if (s.in_parts) {
    out.push_back(
        in_hbm("dq_so_far", kF32, {s.rows() * s.heads, s.head_dim, s.block_q}));
  }
  if (s.in_chunks()) {
    const int64_t tiles = s.columns() * s.kv_heads_per_pass();
    out.push_back(in_hbm("dk_so_far", kF32, {tiles, s.head_dim, s.block_kv}));
    out.push_back(in_hbm("dv_so_far", kF32, {tiles, s.v_head_dim, s.block_kv}));
  }
  return out;
}

// Scratch that stays from step to step: a head's sums and more.
Arguments kept_scratch(const KernelShape& s) {
  constexpr Element kF32 = Element::f32;
  const int64_t rows = s.rows_at_once();
  const int64_t kv_heads = s.kv_heads_per_pass();
  const bool takes_turns = s.heads / s.kv_heads > s.heads_per_pass;
  const int64_t sums = s.in_chunks() ? column_ring_size(s) * kv_heads
                       : takes_turns ? s.columns()
                                     : kv_heads;
  // Per row: the log-sum-exp in base 2, D, dQ'.
  Arguments out = {in_vmem("lses", kF32, {rows, kSublanes, s.block_q}),
                   in_vmem("deltas", kF32, {rows, kSublanes, s.block_q}),
                   in_vmem("dq_sums", kF32,
                           {rows * s.heads_per_pass, s.head_dim, s.block_q}),
                   // For one tile of keys, or for all where heads take turns;
                   // with chunks, for the tiles in the ring.
                   in_vmem("dk_sums", kF32, {sums, s.head_dim, s.block_kv}),
                   in_vmem("dv_sums", kF32, {sums, s.v_head_dim, s.block_kv})};
  if (keeps_keys(s)) {
    out.push_back(in_vmem("keys", element_of(s),
                          {kv_heads * s.head_dim, s.block_kv}));  // K'
  }
  if (s.bitmaps == 0) {
    out.push_back(in_vmem("ids_of_keys", Element::i32, {s.block_kv, kLanes}));
  }
  if (s.any_numbers) out.push_back(in_smem("row_marks", s.rows_at_once()));
  return out;
}

// Scratch for data that comes in and goes out.
Arguments ring_scratch(const KernelShape& s) {
  constexpr Element kF32 = Element::f32;
  const int64_t queries = s.block_q * s.tiles_per_pass;
  const int64_t heads = s.heads_per_pass;
  const int64_t kv_heads = s.kv_heads_per_pass();
  const int64_t columns = column_ring_size(s) * kv_heads;
  const int64_t rows = row_ring_size(s) * heads;
  const auto ring_of = [&](const char* name, int64_t n, int64_t tokens,
                           int64_t dim) {
    return in_vmem(name, element_of(s), tiles_of(s, n, tokens, dim));
  };
  Arguments out = {
      ring_of("k_ring", columns, s.block_kv, s.head_dim),
      ring_of("v_ring", columns, s.block_kv, s.v_head_dim),
      ring_of("q_ring", kPassRing * heads, queries, s.head_dim),
      ring_of("dout_ring", kPassRing * heads, queries, s.v_head_dim),
      ring_of("out_ring", rows, s.block_q, s.v_head_dim),
      ring_of("row_dout_ring", rows, s.block_q, s.v_head_dim),
      in_vmem("lse_ring", kF32, {rows, 1, s.block_q})};
  if (s.has_dlse) {
    out.push_back(in_vmem("dlse_ring", kF32, {rows, 1, s.block_q}));
  }
  if (s.any_numbers) {
    out.push_back(ring_of("row_q_ring", rows, s.block_q, s.head_dim));
  }
  const auto tile_of_keys = [&](const char* name, int64_t dim) {
    const std::vector<int64_t> tile = s.tile_of(s.block_kv, dim);
    return in_vmem(name, element_of_sums(s), {kv_heads * tile[0], tile[1]});
  };
  add(out, {tile_of_keys("dk_tile", s.head_dim),
            tile_of_keys("dv_tile", s.v_head_dim),
            ring_of("dq_ring", kOutRing * heads, s.block_q, s.head_dim)});
  return out;
}

}  // namespace

std::vector<Argument> backward_arguments(const KernelShape& s) {
  const Element own = element_of(s);
  constexpr Element kF32 = Element::f32;
  const int64_t kv_heads = s.kv_heads_per_pass();
  const auto of_queries = [&](const char* name, int64_t dim) {
    return of_tokens(s, name, own, s.heads, s.q_len, dim);
  };
  const std::vector<int64_t> of_rows = {s.batch, s.heads, 1, s.q_len};
  Arguments out = scalar_arguments(s);
  add(out, {of_queries("q", s.head_dim)});
  add_of_keys(s, "k", own, s.head_dim, out);
  add_of_keys(s, "v", own, s.v_head_dim, out);
  add(out, {of_queries("out", s.v_head_dim), of_queries("dout", s.v_head_dim),
            in_hbm("lse", kF32, of_rows)});
  if (s.has_dlse) out.push_back(in_hbm("dlse", kF32, of_rows));
  add(out, id_arguments(s));
  add(out, bit_arguments(s));
  const Arguments results = backward_results(s);
  for (const Argument& a : results) {
    const bool goes_on = a.name == "dq" || a.name == "dq_so_far"
                             ? s.late
                             : s.late_columns && a.name != "dsink_logits" &&
                                   !is_of_chunks(a.name);
    if (goes_on) out.push_back({before(a.name), a.type, a.tokens_last});
  }
  add(out, results);
  add(out, kept_scratch(s));
  add(out, ring_scratch(s));
  add(out, id_scratch(s));
  add(out, {semaphores("pass_copies", {kPassRing}),
            semaphores("row_copies", {row_ring_size(s)}),
            semaphores("kv_copies", {column_ring_size(s)}),
            semaphores("dq_copies", {kOutRing}),
            semaphores("column_copies", {}), semaphores("id_copies", {})});
  add(out, bit_scratch(s, kPassRing));
  if (s.has_sinks) {
    add(out, {in_vmem("sink_line", kF32, {s.heads_per_pass, s.block_q}),
              in_vmem("sink_sums", kF32, {s.heads, 1, kLanes}),
              semaphores("sink_copies", {})});
  }
  if (s.in_parts) out.push_back(semaphores("sums_copies", {}));
  if (s.in_chunks()) {
    add(out, {in_vmem("dk_part", kF32, {kv_heads, s.head_dim, s.block_kv}),
              in_vmem("dv_part", kF32, {kv_heads, s.v_head_dim, s.block_kv}),
              semaphores("part_copies", {})});
  }
  add(out, page_scratch(s));
  return out;
}

int backward_outputs(const KernelShape& shape) {
  return static_cast<int>(backward_results(shape).size());
}

std::string backward_kernel(const KernelShape& shape) {
  return Backward(shape).write();
}

}  // namespace tessera::mosaic
