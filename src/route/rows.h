// route/rows.h: a batch row for routing: the document of each key and query,
// and the blocks in which a document has keys.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "tessera/facts.h"
#include "tessera/plan.h"

namespace tessera::routing {

// Keys [begin, end) of one document. Vetoed keys are in no run.
struct DocumentRun {
  int64_t begin = 0;
  int64_t end = 0;
  int32_t document = 0;
};

// A block in which a document has keys, and the first of these keys.
struct BlockOfDocument {
  int32_t block = 0;
  int32_t first = 0;
};

struct RouteRow {
  int64_t q_offset = 0;
  int64_t valid = 0;      // keys [0, valid) are valid
  int64_t documents = 0;  // numbered from 0; 1 if no mask separates keys
  std::vector<DocumentRun> runs;         // ascending
  std::vector<int32_t> run_start;        // per document; documents + 1
  std::vector<DocumentRun> by_document;  // the same runs, by document
  std::vector<int32_t> query_document;   // [q_len]; -1: it sees no key
  std::vector<int32_t> block_start;      // per document; documents + 1
  std::vector<BlockOfDocument> blocks;   // by document, then block

  std::span<const DocumentRun> runs_of(int32_t document) const {
    const auto d = static_cast<size_t>(document);
    return {by_document.data() + run_start[d],
            static_cast<size_t>(run_start[d + 1] - run_start[d])};
  }
  std::span<const BlockOfDocument> blocks_of(int32_t document) const {
    const auto d = static_cast<size_t>(document);
    return {blocks.data() + block_start[d],
            static_cast<size_t>(block_start[d + 1] - block_start[d])};
  }
  // The first run that ends after `key`.
  size_t run_from(int64_t key) const {
    return static_cast<size_t>(
        std::ranges::upper_bound(runs, key, {}, &DocumentRun::end) -
        runs.begin());
  }
};

// The maximum number of blocks of a batch row.
inline constexpr int64_t kMaxRouteBlocks = int64_t{1} << 26;

// One RouteRow per batch row. The masks of the request may lack their picks.
Result<std::vector<RouteRow>> route_rows(const Request& request,
                                         const Facts& facts, int64_t block);

}  // namespace tessera::routing
