// cli/explain/command.cc: `tessera explain`.
#include "cli/command.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "cli/numbers.h"
#include "cli/request/flags.h"
#include "tessera/plan.h"

namespace tessera::cli {
namespace {

using nlohmann::json;

struct Options {
  RequestFlags request;
  std::optional<std::string> query, key, batch_row, head;
  bool json = false;
};

struct Where {
  int64_t batch_row, head, query;
};

constexpr const char* kClassNames[] = {"empty", "partial", "full"};

TileClass class_of(const Plan& plan, const Where& at, int64_t row,
                   int64_t column) {
  for (const Entry& e :
       plan.forward.row(plan.list(at.batch_row, at.head), row)) {
    if (e.column() == column) return e.tile_class();
  }
  return TileClass::empty;
}

// With what attention does with picks, where there are any.
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

int explain_query(const Legality& legality, const Plan& plan, const Where& at,
                  bool as_json) {
  std::vector<std::pair<int64_t, int64_t>> ranges;  // half-open
  int64_t count = 0;
  for (int64_t k = 0; k < plan.kv_len; ++k) {
    if (!legality.legal(at.batch_row, at.head, at.query, k)) continue;
    ++count;
    if (!ranges.empty() && ranges.back().second == k) {
      ranges.back().second = k + 1;
    } else {
      ranges.emplace_back(k, k + 1);
    }
  }
  const Explanation e = legality.explain(at.batch_row, at.head, at.query, 0);
  const auto row =
      plan.forward.row(plan.list(at.batch_row, at.head), e.tile_row);
  if (as_json) {
    json tiles = json::array();
    for (const Entry& t : row) {
      tiles.push_back(
          {{"column", t.column()},
           {"class", kClassNames[static_cast<int>(t.tile_class())]}});
    }
    json out = {{"query", at.query},      {"batch_row", at.batch_row},
                {"head", at.head},        {"position", e.position},
                {"legal_keys", count},    {"key_ranges", ranges},
                {"tile_row", e.tile_row}, {"tiles", tiles}};
    print_json(plan, std::move(out));
    return kOk;
  }
  fmt::print("query {} (position {}) sees {} of {} keys\n", at.query,
             e.position, count, plan.kv_len);
  constexpr size_t kMaxLines = 20;
  for (size_t i = 0; i < ranges.size() && i < kMaxLines; ++i) {
    fmt::print("  keys {} to {}\n", ranges[i].first, ranges[i].second - 1);
  }
  if (ranges.size() > kMaxLines) {
    fmt::print("  and {} more ranges (--json lists them all)\n",
               ranges.size() - kMaxLines);
  }
  fmt::print("tile row {} holds {} tiles\n", e.tile_row, row.size());
  return kOk;
}

Result<int> run(const Options& o) {
  if (!o.query) {
    return invalid("cli", "--query must be given, found none");
  }
  auto planned = load_planned(o.request);
  if (!planned) return planned.error();
  const Batch& batch = planned->batch;
  const Plan& plan = batch.plan();
  auto query = parse_int(*o.query, "--query", 0, plan.q_len - 1);
  if (!query) return query.error();
  auto batch_row =
      parse_int(o.batch_row.value_or("0"), "--batch-row", 0, plan.batch - 1);
  if (!batch_row) return batch_row.error();
  auto head = parse_int(o.head.value_or("0"), "--head", 0, plan.heads - 1);
  if (!head) return head.error();
  auto legality = Legality::bind(batch.request(), batch.facts());
  if (!legality) return legality.error();
  const Where at{*batch_row, *head, *query};
  if (!o.key) return explain_query(*legality, plan, at, o.json);
  auto key = parse_int(*o.key, "--key", 0, plan.kv_len - 1);
  if (!key) return key.error();
  return explain_pair(*legality, plan, at, *key, o.json);
}

}  // namespace

Command explain_command() {
  auto o = std::make_shared<Options>();
  Command command{"explain", "Why a pair is legal or not, atom by atom"};
  add_request_flags(command, o->request);
  add_flags(command,
            {
                {"--query", &o->query, "I", "Query token"},
                {"--key", &o->key, "J", "Key token [all that the query sees]"},
                {"--batch-row", &o->batch_row, "B", "Which batch row [0]"},
                {"--head", &o->head, "H", "Which plan head [0]"},
                {"--json", &o->json, "", "One JSON object on stdout"},
            });
  command.footer =
      "Example:\n"
      "  tessera explain --mask 'causal & documents' --q-len 1000 \\\n"
      "      --docs lengths:300,700 --query 450 --key 200";
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::cli
