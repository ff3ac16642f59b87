// data/fill_row.cc: the parts of documents that lie in a row become its
// columns.
#include "data/fill_row.h"

#include <algorithm>

#include "base/fail.h"

namespace tessera::data {
namespace {

using enum RowColumn;

// Why a chunk has no number in a row.
constexpr int32_t kElsewhere = -1;
constexpr int32_t kOver = -2;

constexpr RowColumn kStructure[] = {structure_ids, dep_levels, ast_depth,
                                    sibling_index, node_type};
constexpr RowColumn kEdges[] = {call_edges, type_edges};
constexpr RowColumn kEdgeCounts[] = {num_call_edges, num_type_edges};

Error no_room(RowColumn column, int64_t most, int64_t document) {
  return over_limit("data",
                    "a row must have at most {} of {}, found more for document "
                    "{} of its window",
                    most, spec_of(column).name, document);
}

}  // namespace

// One part and where it goes.
struct RowFiller::Place {
  const Documents& documents;
  const DocumentPart& part;
  Rows& rows;
  int64_t row;
  int64_t begin;  // its first token in the row
  int32_t id;

  int64_t source() const {  // its first token of all documents'
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
  // A token's target is the next one of its document, wherever a row ends; the
  // document's last has none.
  const int64_t end = d.token_start[static_cast<size_t>(at.part.document) + 1];
  const int64_t targets = std::min(n, end - at.source() - 1);
  std::copy_n(ids + 1, targets, at.to(target_ids));
  if (d.loss_mask.empty()) {
    std::fill_n(at.to(loss_mask), targets, 1);
  } else {
    // The mask of the token that is the target.
    std::copy_n(d.loss_mask.data() + at.source() + 1, targets,
                at.to(loss_mask));
  }
  for (size_t s = 0; s < Documents::kStructures; ++s) {
    if (d.structure[s].empty()) continue;
    std::copy_n(d.structure[s].data() + at.source(), n, at.to(kStructure[s]));
  }
}

Result<void> RowFiller::chunks(const Place& at) {
  const Documents& d = at.documents;
  const auto document = static_cast<size_t>(at.part.document);
  const int64_t part_end = int64_t{at.part.offset} + at.part.length;
  int32_t& count = at.count(num_chunks);
  number_.clear();
  for (int64_t c = d.chunk_start[document]; c < d.chunk_start[document + 1];
       ++c) {
    const auto chunk = static_cast<size_t>(c);
    const int32_t start = d.chunk_starts[chunk];
    // A chunk lies where its first token does.
    if (start < at.part.offset || start >= part_end) {
      number_.push_back(kElsewhere);
      continue;
    }
    if (count == at.rows.shape.max_chunks) {
      if (room_ == ChunkRoom::refuse) {
        return no_room(chunk_starts, count, at.part.document);
      }
      ++account.chunks_over;
      number_.push_back(kOver);
      continue;
    }
    const int64_t end = std::min<int64_t>(d.chunk_ends[chunk], part_end);
    account.chunks_cut += end < d.chunk_ends[chunk] ? 1 : 0;
    ++account.chunks_out;
    const auto to = static_cast<size_t>(count);
    const int64_t shift = at.begin - at.part.offset;
    at.rows.row(chunk_starts, at.row)[to] = static_cast<int32_t>(start + shift);
    at.rows.row(chunk_ends, at.row)[to] = static_cast<int32_t>(end + shift);
    at.rows.row(chunk_kinds, at.row)[to] = d.chunk_kinds[chunk];
    number_.push_back(count++);
  }
  return {};
}

Result<void> RowFiller::edges(const Place& at, size_t kind) {
  const Documents& d = at.documents;
  const auto document = static_cast<size_t>(at.part.document);
  int32_t& count = at.count(kEdgeCounts[kind]);
  const std::span<int32_t> out = at.rows.row(kEdges[kind], at.row);
  for (int64_t e = d.edge_start[kind][document];
       e < d.edge_start[kind][document + 1]; ++e) {
    const int32_t* const ends = d.edges[kind].data() + 2 * e;
    const int32_t from = number_[static_cast<size_t>(ends[0])];
    const int32_t to = number_[static_cast<size_t>(ends[1])];
    if (from == kElsewhere || to == kElsewhere) continue;
    const bool full = count == at.rows.shape.max_edges;
    if (full && room_ == ChunkRoom::refuse) {
      return no_room(kEdges[kind], count, at.part.document);
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

Result<void> RowFiller::fill(const Documents& documents,
                             std::span<const DocumentPart> parts, Rows& rows,
                             int64_t r) {
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
  return {};
}

}  // namespace tessera::data
