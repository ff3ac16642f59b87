// cli/explain/query.cc: which keys a query sees, and its tiles.
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "cli/explain/answers.h"

namespace tessera::cli {

using nlohmann::json;

Result<Answer> explain_query(const Batch& batch, const Where& at) {
  auto legality = Legality::bind(batch.request(), batch.facts());
  if (!legality) return legality.error();
  const Plan& plan = batch.plan();
  std::vector<std::pair<int64_t, int64_t>> ranges;  // half-open
  int64_t count = 0;
  for (int64_t k = 0; k < plan.kv_len; ++k) {
    if (!legality->legal(at.batch_row, at.head, at.query, k)) continue;
    ++count;
    if (!ranges.empty() && ranges.back().second == k) {
      ranges.back().second = k + 1;
    } else {
      ranges.emplace_back(k, k + 1);
    }
  }
  const Explanation e = legality->explain(at.batch_row, at.head, at.query, 0);
  const auto row =
      plan.forward.row(plan.list(at.batch_row, at.head), e.tile_row);
  json tiles = json::array();
  for (const Entry& tile : row) {
    tiles.push_back(
        {{"column", tile.column()},
         {"class", kClassNames[static_cast<int>(tile.tile_class())]}});
  }
  Answer out;
  out.json = {{"query", at.query},      {"batch_row", at.batch_row},
              {"head", at.head},        {"position", e.position},
              {"legal_keys", count},    {"key_ranges", ranges},
              {"tile_row", e.tile_row}, {"tiles", tiles}};
  out.text = fmt::format("query {} (position {}) sees {} of {} keys\n",
                         at.query, e.position, count, plan.kv_len);
  constexpr size_t kMaxLines = 20;
  for (size_t i = 0; i < ranges.size() && i < kMaxLines; ++i) {
    out.text +=
        fmt::format("  keys {} to {}\n", ranges[i].first, ranges[i].second - 1);
  }
  if (ranges.size() > kMaxLines) {
    out.text += fmt::format("  and {} more ranges (--json lists them all)\n",
                            ranges.size() - kMaxLines);
  }
  out.text +=
      fmt::format("tile row {} holds {} tiles\n", e.tile_row, row.size());
  return out;
}

}  // namespace tessera::cli
