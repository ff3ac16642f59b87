// data/fill_row.cc: fills the columns of a row from parts of documents.
#include "data/fill_row.h"

#include <algorithm>
#include <numeric>

#include "base/fail.h"

namespace tessera::data {
namespace {

using enum RowColumn;

// Marks a chunk that did not fit into its row.
constexpr int32_t kOver = -1;

constexpr RowColumn kStructure[] = {structure_ids, dep_levels, ast_depth,
                                    sibling_index, node_type};
constexpr RowColumn kEdges[] = {call_edges, type_edges};
constexpr RowColumn kEdgeCounts[] = {num_call_edges, num_type_edges};

Error no_room(RowColumn column, int64_t most, const std::string& place) {
  return over_limit("data",
                    "a row must have at most {} of {}, found more for {}", most,
                    spec_of(column).name, place);
}

// The token that places a chunk or an edge, by number within the document: the
// chunk's first token, or that of the chunk where the edge begins.
struct ChunkToken {
  const int32_t* starts;

  ChunkToken(const Documents& d, size_t document)
      : starts(d.chunk_starts.data() + d.chunk_start[document]) {}
  int32_t operator()(int64_t chunk) const { return starts[chunk]; }
};
struct EdgeToken {
  ChunkToken chunk;
  const int32_t* ends;

  EdgeToken(const Documents& d, size_t document, size_t kind)
      : chunk(d, document),
        ends(d.edges[kind].data() + 2 * d.edge_start[kind][document]) {}
  int32_t operator()(int64_t edge) const { return chunk(ends[2 * edge]); }
};

bool is_whole(const Documents& d, const DocumentPart& part) {
  const auto document = static_cast<size_t>(part.document);
  return part.length == d.token_start[document + 1] - d.token_start[document];
}

// The document's range of an array that covers all documents.
std::span<int32_t> of_document(std::vector<int32_t>& all,
                               const std::vector<int64_t>& start,
                               size_t document) {
  return std::span(all).subspan(
      static_cast<size_t>(start[document]),
      static_cast<size_t>(start[document + 1] - start[document]));
}

template <class Token>
void sort_numbers(std::span<int32_t> order, const Token& token) {
  std::iota(order.begin(), order.end(), 0);
  const auto before = [&](int32_t a, int32_t b) { return token(a) < token(b); };
  if (std::is_sorted(order.begin(), order.end(), before)) return;
  std::sort(order.begin(), order.end(), before);
}

// The chunks or edges of a part, in the order of the document: those in `list`,
// or 0 to count - 1 if `list` is null.
struct Numbers {
  int64_t count;
  const int32_t* list;
  int64_t operator[](int64_t i) const { return list == nullptr ? i : list[i]; }
};

// The entries of `order` with a token in [begin, end), sorted by number. Parts
// share no token, so each can sort its own range in place.
template <class Token>
Numbers numbers_within(std::span<int32_t> order, int64_t begin, int64_t end,
                       const Token& token) {
  const auto before = [&](int64_t place) {
    return [&, place](int32_t i) { return token(i) < place; };
  };
  const auto from =
      std::partition_point(order.begin(), order.end(), before(begin));
  const auto to = std::partition_point(from, order.end(), before(end));
  if (!std::is_sorted(from, to)) std::sort(from, to);
  return {to - from, std::to_address(from)};
}

// Pads the row after its tokens, and after the chunks and edges that it counts.
void pad(Rows& rows, int64_t r, int64_t tokens) {
  const auto count = [&](RowColumn column) {
    return int64_t{rows.row(column, r)[0]};
  };
  for (size_t c = 0; c < kRowColumns; ++c) {
    const auto column = static_cast<RowColumn>(c);
    const RowColumnSpec& spec = spec_of(column);
    int64_t used = 0;
    if (spec.unit == RowUnit::row) continue;
    if (spec.unit == RowUnit::token) used = tokens;
    if (spec.unit == RowUnit::chunk) used = count(num_chunks);
    if (column == call_edges) used = 2 * count(num_call_edges);
    if (column == type_edges) used = 2 * count(num_type_edges);
    const auto rest = rows.row(column, r).subspan(static_cast<size_t>(used));
    std::fill(rest.begin(), rest.end(),
              spec.pad_id ? rows.pad_id : spec.padding);
  }
}

}  // namespace

// A part, and where it goes.
struct RowFiller::Place {
  const Documents& documents;
  const DocumentPart& part;
  Rows& rows;
  int64_t row;
  int64_t begin;  // its first token in the row
  int32_t id;

  size_t document() const { return static_cast<size_t>(part.document); }
  int64_t end() const { return int64_t{part.offset} + part.length; }
  bool whole() const { return is_whole(documents, part); }
  int64_t source() const {  // its first token, among those of all documents
    return documents.token_start[static_cast<size_t>(part.document)] +
           part.offset;
  }
  int32_t* to(RowColumn column) const {
    return rows.row(column, row).data() + begin;
  }
  int32_t& count(RowColumn column) const { return rows.row(column, row)[0]; }
};

void RowFiller::tokens(const Place& at) {
  const Documents& d = at.documents;
  const int64_t n = at.part.length;
  const int32_t* const ids = d.input_ids.data() + at.source();
  std::copy_n(ids, n, at.to(input_ids));
  std::fill_n(at.to(doc_ids), n, at.id);
  int32_t* const position = at.to(positions);
  for (int64_t i = 0; i < n; ++i) {
    position[i] = static_cast<int32_t>(at.part.offset + i);
  }
  // A token's target is the next token of its document, even if that is in
  // another row; the document's last token has none.
  const int64_t end = d.token_start[static_cast<size_t>(at.part.document) + 1];
  const int64_t targets = std::min(n, end - at.source() - 1);
  std::copy_n(ids + 1, targets, at.to(target_ids));
  if (targets < n) {
    at.to(target_ids)[targets] = at.rows.pad_id;
    at.to(loss_mask)[targets] = 0;
  }
  if (d.loss_mask.empty()) {
    std::fill_n(at.to(loss_mask), targets, 1);
  } else {
    // The loss mask is that of the target token.
    std::copy_n(d.loss_mask.data() + at.source() + 1, targets,
                at.to(loss_mask));
  }
  for (size_t s = 0; s < Documents::kStructures; ++s) {
    if (d.structure[s].empty()) {
      std::fill_n(at.to(kStructure[s]), n, 0);
      continue;
    }
    std::copy_n(d.structure[s].data() + at.source(), n, at.to(kStructure[s]));
  }
}

void RowFiller::sort_by_token(int64_t document) {
  const Documents& d = *documents_;
  const auto at = static_cast<size_t>(document);
  chunk_order_.resize(d.chunk_starts.size());
  sort_numbers(of_document(chunk_order_, d.chunk_start, at), ChunkToken(d, at));
  for (size_t kind = 0; kind < d.edges.size(); ++kind) {
    edge_order_[kind].resize(d.edges[kind].size() / 2);
    sort_numbers(of_document(edge_order_[kind], d.edge_start[kind], at),
                 EdgeToken(d, at, kind));
  }
}

void RowFiller::start(const Documents& documents,
                      std::span<const DocumentPart> parts) {
  documents_ = &documents;
  number_.resize(documents.chunk_starts.size());
  if (number_.empty()) return;
  // The kept parts of a document are adjacent, so a range can hold them.
  kept_.assign(static_cast<size_t>(documents.size()), {INT32_MAX, 0});
  for (const DocumentPart& part : parts) {
    if (is_whole(documents, part)) continue;
    auto& [begin, end] = kept_[static_cast<size_t>(part.document)];
    if (end == 0) sort_by_token(part.document);
    begin = std::min(begin, part.offset);
    end = std::max(end, part.offset + part.length);
  }
}

bool RowFiller::is_kept(int64_t document, int32_t token) const {
  const auto& [begin, end] = kept_[static_cast<size_t>(document)];
  return token >= begin && token < end;
}

Result<void> RowFiller::chunks(const Place& at) {
  const Documents& d = at.documents;
  const ChunkToken token(d, at.document());
  const int64_t first = d.chunk_start[at.document()];
  const Numbers own =
      at.whole() ? Numbers{d.chunk_start[at.document() + 1] - first, nullptr}
                 : numbers_within(
                       of_document(chunk_order_, d.chunk_start, at.document()),
                       at.part.offset, at.end(), token);
  int32_t& count = at.count(num_chunks);
  for (int64_t i = 0; i < own.count; ++i) {
    const auto chunk = static_cast<size_t>(first + own[i]);
    if (count == at.rows.shape.max_chunks) {
      if (room_ == ChunkRoom::refuse) {
        return no_room(chunk_starts, count, place_(at.part.document));
      }
      ++account.chunks_over;
      number_[chunk] = kOver;
      continue;
    }
    const int64_t end = std::min<int64_t>(d.chunk_ends[chunk], at.end());
    account.chunks_cut += end < d.chunk_ends[chunk] ? 1 : 0;
    ++account.chunks_out;
    const auto to = static_cast<size_t>(count);
    const int64_t shift = at.begin - at.part.offset;
    at.rows.row(chunk_starts, at.row)[to] =
        static_cast<int32_t>(d.chunk_starts[chunk] + shift);
    at.rows.row(chunk_ends, at.row)[to] = static_cast<int32_t>(end + shift);
    at.rows.row(chunk_kinds, at.row)[to] = d.chunk_kinds[chunk];
    number_[chunk] = count++;
  }
  return {};
}

Result<void> RowFiller::edges(const Place& at, size_t kind) {
  const Documents& d = at.documents;
  const std::vector<int64_t>& start = d.edge_start[kind];
  const EdgeToken token(d, at.document(), kind);
  const Numbers own =
      at.whole()
          ? Numbers{start[at.document() + 1] - start[at.document()], nullptr}
          : numbers_within(of_document(edge_order_[kind], start, at.document()),
                           at.part.offset, at.end(), token);
  const int32_t* const number = number_.data() + d.chunk_start[at.document()];
  int32_t& count = at.count(kEdgeCounts[kind]);
  const std::span<int32_t> out = at.rows.row(kEdges[kind], at.row);
  for (int64_t i = 0; i < own.count; ++i) {
    const int32_t* const ends = token.ends + 2 * own[i];
    const int32_t there = token.chunk(ends[1]);
    if (there < at.part.offset || there >= at.end()) {
      account.edges_across += is_kept(at.part.document, there) ? 1 : 0;
      continue;
    }
    const int32_t from = number[ends[0]];
    const int32_t to = number[ends[1]];
    const bool full = count == at.rows.shape.max_edges;
    if (full && room_ == ChunkRoom::refuse) {
      return no_room(kEdges[kind], count, place_(at.part.document));
    }
    if (full || from == kOver || to == kOver) {
      ++account.edges_over;
      continue;
    }
    out[2 * static_cast<size_t>(count)] = from;
    out[2 * static_cast<size_t>(count) + 1] = to;
    ++count;
    ++account.edges_out;
  }
  return {};
}

Result<void> RowFiller::fill(std::span<const DocumentPart> parts, Rows& rows,
                             int64_t r) {
  const Documents& documents = *documents_;
  for (const RowColumn column : {num_chunks, num_call_edges, num_type_edges}) {
    rows.row(column, r)[0] = 0;
  }
  int64_t begin = 0;
  int32_t id = 0;
  for (const DocumentPart& part : parts) {
    const Place at{documents, part, rows, r, begin, id};
    tokens(at);
    const auto d = static_cast<size_t>(part.document);
    if (documents.chunk_start[d] < documents.chunk_start[d + 1]) {
      if (auto e = chunks(at); !e) return e;
      for (size_t kind = 0; kind < documents.edges.size(); ++kind) {
        if (auto e = edges(at, kind); !e) return e;
      }
    }
    begin += part.length;
    ++id;
  }
  rows.row(valid_token_count, r)[0] = static_cast<int32_t>(begin);
  rows.row(num_docs, r)[0] = id;
  pad(rows, r, begin);
  return {};
}

}  // namespace tessera::data

std::string_view tessera::to_string(ChunkRoom room) {
  return room == ChunkRoom::drop ? "drop" : "refuse";
}
