// data/documents.cc: clears documents, and closes the document being added.
#include "tessera/documents.h"

namespace tessera {

void Documents::clear() {
  token_start.assign(1, 0);
  chunk_start.assign(1, 0);
  for (std::vector<int64_t>& start : edge_start) start.assign(1, 0);
  for (std::vector<int32_t>* column :
       {&input_ids, &loss_mask, &chunk_starts, &chunk_ends, &chunk_kinds,
        &edges[0], &edges[1]}) {
    column->clear();
  }
  for (std::vector<int32_t>& column : structure) column.clear();
}

void Documents::close_document() {
  const size_t tokens = input_ids.size();
  // If other documents have a column, this one gets the default values.
  if (!loss_mask.empty()) loss_mask.resize(tokens, 1);
  for (std::vector<int32_t>& column : structure) {
    if (!column.empty()) column.resize(tokens, 0);
  }
  token_start.push_back(static_cast<int64_t>(tokens));
  chunk_start.push_back(static_cast<int64_t>(chunk_starts.size()));
  for (size_t kind = 0; kind < edges.size(); ++kind) {
    edge_start[kind].push_back(static_cast<int64_t>(edges[kind].size() / 2));
  }
}

}  // namespace tessera
