// data/position_fields.h: the numbers of a stream's position by name, for
// journals and Python, and the check that a position belongs to a stream.
#pragma once

#include "tessera/documents.h"

namespace tessera::data {

// Larger than any real count; sums of smaller counts do not overflow.
inline constexpr int64_t kMaxCount = int64_t{1} << 53;

// Calls visit(name, number) for each count, an int64_t or a double.
template <class Counts, class Visit>
void visit_counts(Counts& counts, const Visit& visit) {
  auto& a = counts.account;
  visit("documents", a.documents);
  visit("empty_documents", a.empty_documents);
  visit("long_documents", a.long_documents);
  visit("dropped_documents", a.dropped_documents);
  visit("parts", a.parts);
  visit("tokens_in", a.tokens_in);
  visit("tokens_out", a.tokens_out);
  visit("tokens_dropped", a.tokens_dropped);
  visit("packed_rows", a.rows);
  visit("padding", a.padding);
  auto& c = counts.chunks;
  visit("chunks_in", c.chunks_in);
  visit("chunks_out", c.chunks_out);
  visit("chunks_cut", c.chunks_cut);
  visit("chunks_over", c.chunks_over);
  visit("edges_in", c.edges_in);
  visit("edges_out", c.edges_out);
  visit("edges_over", c.edges_over);
  visit("edges_across", c.edges_across);
  auto& b = counts.balance;
  visit("step_rows", b.rows);
  visit("step_most", b.most);
  visit("step_cost", b.cost);
  visit("step_parts", b.parts);
  visit("step_tokens", b.tokens);
  visit("steps", b.steps);
  visit("step_ratios", b.ratios);
  visit("step_worst", b.worst);
  visit("step_lengths", b.lengths);
  visit("step_squares", b.squares);
}

// An error unless the position has the options and inputs digests of `begin`.
Result<void> check_stream(const StreamPosition& from,
                          const StreamPosition& begin);

template <class Position, class Visit>
void visit_position(Position& p, const Visit& visit) {
  visit("file", p.source.file);
  visit("offset", p.source.offset);
  visit("line", p.source.line);
  visit("window", p.state.window);
  visit("open_rows", p.state.open_rows);
  visit("open_cost", p.state.open_cost);
  visit("rows", p.rows);
  visit_counts(p.counted, visit);
}

}  // namespace tessera::data
