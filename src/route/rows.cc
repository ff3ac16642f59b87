// route/rows.cc: validates facts and turns them into numbered documents.
#include "route/rows.h"

#include <algorithm>

#include "base/fail.h"
#include "base/integers.h"
#include "mask/bind.h"
#include "mask/runs.h"

namespace tessera::routing {
namespace {

// The request with a mask that separates documents and names no picks yet.
Result<Request> without_picks(const Request& request) {
  const Names names = mask::names_of(request);
  Expr expr = causal();
  if (names.documents) expr = std::move(expr) & documents();
  if (names.segments) expr = std::move(expr) & segments();
  auto mask = make_mask(expr);
  if (!mask) return mask.error();
  Request out = request;
  out.masks = {std::move(*mask)};
  return out;
}

// The number of each document of `runs`, in order of first appearance.
struct Numbers {
  std::vector<int32_t> of_run;
  // Ids with their numbers, ascending by id.
  std::vector<std::pair<int32_t, int32_t>> of_id;
  int64_t count = 0;
};

Numbers number_documents(const mask::IdRuns& runs, bool segments_apart) {
  Numbers out;
  out.of_run.assign(runs.id.size(), -1);
  if (segments_apart) {
    for (size_t r = 0; r < runs.id.size(); ++r) {
      if (runs.id[r] >= 0) {
        out.of_run[r] = static_cast<int32_t>(out.count++);
      }
    }
    return out;
  }
  std::vector<int32_t> order(runs.id.size());
  for (size_t r = 0; r < order.size(); ++r) order[r] = static_cast<int32_t>(r);
  std::stable_sort(order.begin(), order.end(), [&](int32_t l, int32_t r) {
    return runs.id[static_cast<size_t>(l)] < runs.id[static_cast<size_t>(r)];
  });
  // Until all ids are numbered, the first run of an id represents it.
  std::vector<int32_t> first(runs.id.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const auto r = static_cast<size_t>(order[i]);
    const bool again =
        i > 0 && runs.id[static_cast<size_t>(order[i - 1])] == runs.id[r];
    first[r] = again ? first[static_cast<size_t>(order[i - 1])] : order[i];
  }
  for (size_t r = 0; r < runs.id.size(); ++r) {
    if (runs.id[r] < 0) continue;
    const auto f = static_cast<size_t>(first[r]);
    out.of_run[r] = f == r ? static_cast<int32_t>(out.count++) : out.of_run[f];
  }
  for (const int32_t r : order) {
    const auto at = static_cast<size_t>(r);
    if (out.of_run[at] < 0 || first[at] != r) continue;
    out.of_id.emplace_back(runs.id[at], out.of_run[at]);
  }
  return out;
}

// The document at `position`; -1: none. Runs ascend.
int32_t document_at(const std::vector<DocumentRun>& runs, int64_t position) {
  const auto it = std::upper_bound(
      runs.begin(), runs.end(), position,
      [](int64_t p, const DocumentRun& run) { return p < run.begin; });
  if (it == runs.begin()) return -1;
  const DocumentRun& run = *(it - 1);
  return position < run.end ? run.document : -1;
}

void find_query_documents(const mask::BoundRow& bound, const Numbers* numbers,
                          RouteRow& row) {
  for (int64_t q = 0; q < bound.q_end; ++q) {
    int32_t& document = row.query_document[static_cast<size_t>(q)];
    if (numbers == nullptr) {
      document = 0;
    } else if (bound.q_ids == nullptr) {
      document = document_at(row.runs, q + bound.q_offset);
    } else {
      const int32_t id = bound.q_ids[q];
      const auto it =
          std::lower_bound(numbers->of_id.begin(), numbers->of_id.end(),
                           std::pair<int32_t, int32_t>(id, 0));
      if (it != numbers->of_id.end() && it->first == id) document = it->second;
    }
  }
}

// A counting sort by document; runs stay ascending within a document.
void sort_runs(RouteRow& row) {
  row.run_start.assign(static_cast<size_t>(row.documents) + 1, 0);
  for (const DocumentRun& run : row.runs) {
    ++row.run_start[static_cast<size_t>(run.document) + 1];
  }
  for (size_t d = 1; d < row.run_start.size(); ++d) {
    row.run_start[d] += row.run_start[d - 1];
  }
  std::vector<int32_t> at(row.run_start.begin(), row.run_start.end() - 1);
  row.by_document.resize(row.runs.size());
  for (const DocumentRun& run : row.runs) {
    int32_t& next = at[static_cast<size_t>(run.document)];
    row.by_document[static_cast<size_t>(next++)] = run;
  }
}

// Finds each document's blocks, sorted the same way.
void find_blocks(int64_t block, RouteRow& row) {
  const auto documents = static_cast<size_t>(row.documents);
  std::vector<int32_t> last(documents, -1);
  std::vector<std::pair<int32_t, BlockOfDocument>> found;
  row.block_start.assign(documents + 1, 0);
  for (const DocumentRun& run : row.runs) {
    const auto d = static_cast<size_t>(run.document);
    for (int64_t b = run.begin / block; b * block < run.end; ++b) {
      if (last[d] == b) continue;
      last[d] = static_cast<int32_t>(b);
      const int64_t first = std::max(run.begin, b * block);
      found.push_back({run.document, {last[d], static_cast<int32_t>(first)}});
      ++row.block_start[d + 1];
    }
  }
  for (size_t d = 0; d < documents; ++d) {
    row.block_start[d + 1] += row.block_start[d];
  }
  std::vector<int32_t> at(row.block_start.begin(), row.block_start.end() - 1);
  row.blocks.resize(found.size());
  for (const auto& [document, of] : found) {
    const auto d = static_cast<size_t>(document);
    row.blocks[static_cast<size_t>(at[d]++)] = of;
  }
}

}  // namespace

Result<std::vector<RouteRow>> route_rows(const Request& request,
                                         const Facts& facts, int64_t block) {
  if (auto e = mask::check_request(request); !e) return e.error();
  if (ceil_div(request.kv_len, block) > kMaxRouteBlocks) {
    return over_limit("route", "keys must be at most {} blocks, found {}",
                      kMaxRouteBlocks, ceil_div(request.kv_len, block));
  }
  const Names names = mask::names_of(request);
  if (names.tree) {
    return invalid("route",
                   "a router pools keys of branches that do not see each "
                   "other, so no mask may name a tree, found {}",
                   to_string(request.masks.front()));
  }
  if (names.same != 0) {
    return invalid("route",
                   "a router knows documents and positions alone, so no mask "
                   "may name same, found {}",
                   to_string(request.masks.front()));
  }
  auto plain = without_picks(request);
  if (!plain) return plain.error();
  Facts others = facts;
  others.picks.reset();
  auto bound = mask::bind(*plain, others);
  if (!bound) return bound.error();

  const bool parted = names.documents || names.segments;
  std::vector<RouteRow> rows(static_cast<size_t>(request.batch));
  mask::IdRuns ids;
  for (size_t b = 0; b < rows.size(); ++b) {
    const mask::BoundRow& from = bound->rows[b];
    RouteRow& row = rows[b];
    row.q_offset = from.q_offset;
    row.valid = from.valid;
    row.query_document.assign(static_cast<size_t>(request.q_len), -1);
    if (!parted) {
      row.documents = 1;
      if (from.valid > 0) row.runs.push_back({0, from.valid, 0});
      find_query_documents(from, nullptr, row);
    } else {
      // Documents are numbered over all keys. One whose keys are all beyond the
      // valid count keeps its number but has no run.
      mask::find_runs(from.ids, request.kv_len, ids);
      const Numbers numbers = number_documents(ids, names.segments);
      row.documents = numbers.count;
      for (size_t r = 0; r < ids.id.size(); ++r) {
        const int64_t begin = ids.start[r];
        const int64_t end = std::min<int64_t>(ids.start[r + 1], from.valid);
        if (numbers.of_run[r] < 0 || begin >= end) continue;
        row.runs.push_back({begin, end, numbers.of_run[r]});
      }
      find_query_documents(from, &numbers, row);
    }
    sort_runs(row);
    find_blocks(block, row);
  }
  return rows;
}

}  // namespace tessera::routing
