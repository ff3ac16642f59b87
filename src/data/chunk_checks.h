// data/chunk_checks.h: checks of a document's chunks and edges.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/documents.h"

namespace tessera::data {

struct ChunkColumns {
  std::vector<int32_t> starts, ends, kinds;         // kinds: empty for all 0
  std::string unit = "token";                       // or "character"
  std::optional<std::vector<int32_t>> token_spans;  // [begin, end) per token
};

// Adds chunks to the document that is being added. Chunks of characters become
// chunks of the tokens that they touch; this needs the exact spans of tokens.
Result<void> add_chunks(ChunkColumns chunks, int64_t tokens,
                        std::string_view place, Documents& into);
// Adds edges, pairs of the document's chunks. `kind`: 0 calls, 1 types.
Result<void> add_edges(std::span<const int32_t> ends, size_t kind,
                       std::string_view column, std::string_view place,
                       Documents& into);

}  // namespace tessera::data
