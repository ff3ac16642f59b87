// cli/bench_plan.cc: `tessera bench plan`: time, memory and growth.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/files.h"
#include "cli/bench.h"
#include "cli/command.h"
#include "cli/documents.h"
#include "cli/memory_meter.h"
#include "cli/numbers.h"
#include "cli/routed.h"
#include "cli/timing.h"
#include "receipt/machine.h"
#include "tessera/contract.h"
#include "tessera/version.h"

namespace tessera::cli {
namespace {

using nlohmann::json;

struct Options {
  std::optional<std::string> mask, tokens;
  bool json = false;
  std::optional<std::string> out;
};

struct Case {
  std::string mask;
  int64_t tokens;
  bool documents;           // lognormal lengths, mean 2048, seed 0
  double goal_us;           // 0: none, the row only shows growth
  double goal_extra_bytes;  // a token; 0: none
};

constexpr const char* kPacked = "causal & window(4095, 0) & documents";
std::vector<Case> all_cases() {
  return {
      {kPacked, 1 << 20, true, 2000, 1},
      {"causal", 1 << 17, false, 1000, 0},
      {"causal & documents", 1 << 15, true, 60, 1},
      {kPacked, 1 << 16, true, 0, 0},
      {kPacked, 1 << 17, true, 0, 0},
      {kPacked, 1 << 18, true, 0, 0},
      {kPacked, 1 << 19, true, 0, 0},
      {kPacked, 1 << 21, true, 0, 0},
      {kPacked, 1 << 22, true, 0, 0},
  };
}

// Those of the table, or the one that was asked for.
Result<std::vector<Case>> cases_of(const Options& o) {
  if (!o.mask) {
    if (!o.tokens) return all_cases();
    return invalid("cli", "--tokens goes with --mask, found it alone");
  }
  auto mask = parse_mask(*o.mask);
  if (!mask) return mask.error();
  auto tokens =
      parse_int(o.tokens.value_or("32768"), "--tokens", 1, kMaxTokens);
  if (!tokens) return tokens.error();
  const bool documents = mask->names.documents || mask->names.segments;
  return std::vector<Case>{{*o.mask, *tokens, documents, 0, 0}};
}

struct Measured {
  int64_t ns = 0;
  int64_t tiles = 0;
  int64_t result_bytes = 0;
  int64_t extra_bytes = 0;  // peak while planning, beyond the result
  std::string digest;
  std::string picks;    // how they were drawn, of a mask that names a router
  double route_ms = 0;  // before planning
};

int64_t bytes_of(const Plan& plan) {
  auto list = [](const Worklist& w) {
    return w.row_start.size() * sizeof(uint32_t) +
           w.entries.size() * sizeof(Entry);
  };
  return static_cast<int64_t>(list(plan.forward) + list(plan.transposed) +
                              plan.legal_pairs.size() * sizeof(int64_t));
}

Result<Measured> measure(const Case& c) {
  auto mask = parse_mask(c.mask);
  if (!mask) return mask.error();
  Resolved resolved;
  Request& request = resolved.request;
  request.masks = {std::move(*mask)};
  request.q_len = request.kv_len = c.tokens;
  if (c.documents) {
    resolved.facts.doc_ids = lognormal_ids(2048, 0, c.tokens);
  }
  Measured m;
  if (names_router(request)) {
    PickSource source;
    source.drawn.emplace();
    auto routed = route_picks({}, source, {}, {}, resolved, m.route_ms);
    if (!routed) return routed.error();
    m.picks = source.drawn->clusters.describe();
  }
  const Facts facts = resolved.facts.view();
  {
    reset_heap_peak();
    const int64_t before = heap_bytes().now;
    auto batch = BorrowedBatch::make(request, facts);
    if (!batch) return batch.error();
    const Plan& plan = batch->plan();
    m.result_bytes = bytes_of(plan);
    m.extra_bytes = heap_bytes().peak - before - m.result_bytes;
    m.tiles = static_cast<int64_t>(plan.forward.entries.size());
    m.digest = plan_digest(plan);
  }
  auto ns = best_plan_ns(request, facts);
  if (!ns) return ns.error();
  m.ns = *ns;
  return m;
}

Result<int> bench_plan(const Options& o) {
  auto cases = cases_of(o);
  if (!cases) return cases.error();
  json rows = json::array();
  bool has_goals = false;
  bool reached = true;
  if (!o.json) {
    fmt::print(
        "Planning on one core of {}, tile 256x256, from raw ids to both "
        "lists.\n\n",
        cpu_model());
    fmt::print("{:<38} {:>9} {:>8} {:>10} {:>9} {:>9} {:>8}\n", "mask",
               "tokens", "tiles", "us", "goal us", "ns/token", "extra B");
  }
  for (const Case& c : *cases) {
    auto m = measure(c);
    if (!m) return m.error();
    const double us = static_cast<double>(m->ns) / 1e3;
    const double tokens = static_cast<double>(c.tokens);
    const double extra = static_cast<double>(m->extra_bytes) / tokens;
    const bool fast = c.goal_us == 0 || us <= c.goal_us;
    const bool lean = c.goal_extra_bytes == 0 || extra <= c.goal_extra_bytes;
    has_goals |= c.goal_us > 0 || c.goal_extra_bytes > 0;
    reached &= fast && lean;
    rows.push_back({{"mask", c.mask},
                    {"tokens", c.tokens},
                    {"docs", c.documents ? "lognormal:mean=2048,seed=0" : ""},
                    {"tiles", m->tiles},
                    {"plan_ns", m->ns},
                    {"result_bytes", m->result_bytes},
                    {"extra_bytes", m->extra_bytes},
                    {"extra_bytes_per_token", extra},
                    {"digest", m->digest}});
    if (c.goal_us > 0) rows.back()["goal_ns"] = c.goal_us * 1e3;
    if (!m->picks.empty()) {
      rows.back()["picks"] = m->picks;
      rows.back()["route_ms"] = m->route_ms;
    }
    if (!o.json) {
      fmt::print("{:<38} {:>9} {:>8} {:>10.1f} {:>9} {:>9.3f} {:>8.3f}\n",
                 c.mask, c.tokens, m->tiles, us,
                 c.goal_us > 0 ? fmt::format("{:.0f}", c.goal_us) : "",
                 static_cast<double>(m->ns) / tokens, extra);
      if (!m->picks.empty()) {
        fmt::print("  picks, routed before in {:.1f} ms: {}\n", m->route_ms,
                   m->picks);
      }
    }
  }
  json out = {{"bench", "plan"},
              {"version", kVersion},
              {"cpu", cpu_model()},
              {"tile", {256, 256}},
              {"cases", rows}};
  if (has_goals) out["goals_reached"] = reached;
  if (o.out) {
    if (auto e = write_file(*o.out, out.dump(2) + "\n"); !e) return e.error();
  }
  if (o.json) {
    fmt::print("{}\n", out.dump());
  } else {
    fmt::print("\nextra B: peak heap beyond the result, bytes a token.{}\n",
               !has_goals ? ""
               : reached  ? " Goals reached."
                          : " Goals missed.");
  }
  return kOk;
}

}  // namespace

Command bench_plan_command() {
  auto o = std::make_shared<Options>();
  Command command{"plan",
                  "The planner: time, memory and growth with the tokens"};
  add_flags(command,
            {
                {"--mask", &o->mask, "EXPR",
                 "This mask alone: documents are drawn where it names them, "
                 "and picks of routed(...) are those of drawn, clustered "
                 "inputs [the table]"},
                {"--tokens", &o->tokens, "N", "With --mask [32768]"},
                {"--json", &o->json, "", "One JSON object on stdout"},
                {"-o,--out", &o->out, "FILE", "Write the JSON here too"},
            });
  command.footer =
      "bench/plan_peers.py puts these figures beside JAX Splash's and\n"
      "PyTorch FlexAttention's on the same documents.";
  command.work = [o] { return bench_plan(*o); };
  return command;
}

}  // namespace tessera::cli
