// cli/explain/pair.cc: why a pair is legal or not.
#include <fmt/format.h>

#include <vector>

#include "cli/explain/answers.h"

namespace tessera::cli {
namespace {

using nlohmann::json;

TileClass class_of(const Plan& plan, const Where& at, int64_t row,
                   int64_t column) {
  for (const Entry& e :
       plan.forward.row(plan.list(at.batch_row, at.head), row)) {
    if (e.column() == column) return e.tile_class();
  }
  return TileClass::empty;
}

json steps_json(const std::vector<ExplainStep>& steps) {
  json out = json::array();
  for (const ExplainStep& s : steps) {
    out.push_back({{"depth", s.depth},
                   {"text", s.text},
                   {"holds", s.holds},
                   {"why", s.why}});
  }
  return out;
}

}  // namespace

Result<Answer> explain_pair(const Batch& batch, const Where& at, int64_t key) {
  auto legality = Legality::bind(batch.request(), batch.facts());
  if (!legality) return legality.error();
  const Explanation e = legality->explain(at.batch_row, at.head, at.query, key);
  const char* name = kClassNames[static_cast<int>(
      class_of(batch.plan(), at, e.tile_row, e.tile_column))];
  Answer out;
  out.json = {
      {"query", at.query},
      {"key", key},
      {"batch_row", at.batch_row},
      {"head", at.head},
      {"legal", e.legal},
      {"position", e.position},
      {"expression", steps_json(e.expression)},
      {"vetoes", steps_json(e.vetoes)},
      {"tile",
       {{"row", e.tile_row}, {"column", e.tile_column}, {"class", name}}}};
  out.text = fmt::format("query {} (position {}) and key {}: {}\n", at.query,
                         e.position, key, e.legal ? "legal" : "not legal");
  for (const ExplainStep& s : e.expression) {
    out.text += fmt::format("  {:>{}}{:<5} {}{}\n", "", 2 * s.depth,
                            s.holds ? "yes" : "no", s.text,
                            s.why.empty() ? "" : ": " + s.why);
  }
  for (const ExplainStep& s : e.vetoes) {
    out.text += fmt::format("  {:<7} {}: {}\n", s.holds ? "veto" : "no veto",
                            s.text, s.why);
  }
  out.text += fmt::format("in tile row {}, column {}, which is {}\n",
                          e.tile_row, e.tile_column, name);
  return out;
}

}  // namespace tessera::cli
