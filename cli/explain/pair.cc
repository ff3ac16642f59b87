// cli/explain/pair.cc: why a pair is legal or not.
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "cli/command.h"
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

}  // namespace

void print_json(const Plan& plan, json out) {
  if (plan.meaning) out["meaning"] = to_string(*plan.meaning);
  fmt::print("{}\n", out.dump());
}

int explain_pair(const Legality& legality, const Plan& plan, const Where& at,
                 int64_t key, bool as_json) {
  const Explanation e = legality.explain(at.batch_row, at.head, at.query, key);
  const char* name = kClassNames[static_cast<int>(
      class_of(plan, at, e.tile_row, e.tile_column))];
  if (as_json) {
    auto steps = [](const std::vector<ExplainStep>& in) {
      json out = json::array();
      for (const ExplainStep& s : in) {
        out.push_back({{"depth", s.depth},
                       {"text", s.text},
                       {"holds", s.holds},
                       {"why", s.why}});
      }
      return out;
    };
    json out = {
        {"query", at.query},
        {"key", key},
        {"batch_row", at.batch_row},
        {"head", at.head},
        {"legal", e.legal},
        {"position", e.position},
        {"expression", steps(e.expression)},
        {"vetoes", steps(e.vetoes)},
        {"tile",
         {{"row", e.tile_row}, {"column", e.tile_column}, {"class", name}}}};
    print_json(plan, std::move(out));
    return kOk;
  }
  fmt::print("query {} (position {}) and key {}: {}\n", at.query, e.position,
             key, e.legal ? "legal" : "not legal");
  for (const ExplainStep& s : e.expression) {
    fmt::print("  {:>{}}{:<5} {}{}\n", "", 2 * s.depth, s.holds ? "yes" : "no",
               s.text, s.why.empty() ? "" : ": " + s.why);
  }
  for (const ExplainStep& s : e.vetoes) {
    fmt::print("  {:<7} {}: {}\n", s.holds ? "veto" : "no veto", s.text, s.why);
  }
  fmt::print("in tile row {}, column {}, which is {}\n", e.tile_row,
             e.tile_column, name);
  return kOk;
}

}  // namespace tessera::cli
