// bench/plan/command.cc: `tessera-bench plan`: time, memory, growth of plans.
#include "cli/command.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/fail.h"
#include "base/text.h"
#include "bench/commands.h"
#include "bench/harness/flags.h"
#include "bench/plan/measure.h"
#include "cli/given_flags.h"
#include "receipt/machine.h"
#include "request/make_request.h"
#include "request/numbers.h"
#include "tessera/mask.h"
#include "tessera/plan.h"
#include "tessera/version.h"

namespace tessera::bench {

using cli::add_flags;
using cli::Command;
using cli::kOk;
using request::parse_int;

namespace {

using nlohmann::json;

struct Options {
  std::optional<std::string> mask, tokens, docs, tile;
  bool json = false;
  std::optional<std::string> out;
};

// The cases of the table, or the one case of --mask.
Result<std::vector<PlanCase>> cases_of(const Options& o) {
  if (!o.mask) {
    const auto found = cli::first_given({{"--tokens", o.tokens.has_value()},
                                         {"--docs", o.docs.has_value()},
                                         {"--tile", o.tile.has_value()}});
    if (found.empty()) return plan_cases();
    return invalid("cli", "{} goes with --mask, found it alone", found);
  }
  auto mask = parse_mask(*o.mask);
  if (!mask) return mask.error();
  auto tokens =
      parse_int(o.tokens.value_or("32768"), "--tokens", 1, kMaxTokens);
  if (!tokens) return tokens.error();
  auto tile = request::parse_tile(o.tile.value_or("256"), "--tile");
  if (!tile) return tile.error();
  const bool documents = mask->names.documents || mask->names.segments;
  if (o.docs && !documents) {
    return invalid("cli",
                   "--docs goes with a mask that names documents, found {}",
                   in_quotes(*o.mask));
  }
  const std::string docs = documents ? o.docs.value_or(kPlanDocs) : "";
  return std::vector<PlanCase>{{*o.mask, *tokens, docs, 0, 0, *tile}};
}

Result<int> run(const Options& o) {
  auto cases = cases_of(o);
  if (!cases) return cases.error();
  if (auto e = check_result(o.out); !e) return e.error();
  const Tile tile = cases->front().tile;  // all cases have the same tile
  json rows = json::array();
  bool has_goals = false;
  bool reached = true;
  if (!o.json) {
    fmt::print(
        "Planning on one core of {}, tile {}x{}, from raw ids to both "
        "lists.\n\n",
        receipt::cpu_model(), tile.q, tile.kv);
    fmt::print("{:<38} {:>9} {:>8} {:>10} {:>9} {:>9} {:>8}\n", "mask",
               "tokens", "tiles", "us", "goal us", "ns/token", "extra B");
  }
  for (const PlanCase& c : *cases) {
    auto m = measure_plan(c);
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
                    {"docs", c.docs},
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
              {"cpu", receipt::cpu_model()},
              {"tile", {tile.q, tile.kv}},
              {"cases", rows}};
  if (has_goals) out["goals_reached"] = reached;
  if (auto e = write_result(o.out, out); !e) return e.error();
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

Command plan_command() {
  auto o = std::make_shared<Options>();
  Command command{"plan",
                  "The planner: time, memory and growth with the tokens"};
  add_flags(
      command,
      {
          {"--mask", &o->mask, "EXPR",
           "This mask alone: documents are drawn where it names them, "
           "and picks of routed(...) are those of drawn, clustered "
           "inputs [the table]"},
          {"--tokens", &o->tokens, "N",
           "With --mask: tokens of the batch row [32768]"},
          {"--docs", &o->docs, "SOURCE",
           std::string("With --mask: its documents, as in `tessera plan` "
                       "[") +
               kPlanDocs + "]"},
          {"--tile", &o->tile, "QxKV", "With --mask: size of a tile [256x256]"},
          {"--json", &o->json, "", "One JSON object on stdout"},
          {"-o,--out", &o->out, "FILE", "Write the JSON here too"},
      });
  command.footer =
      "The time is the least of 3 runs or more into memory that was used "
      "before;\n`tessera plan` tells that of one.\n"
      "bench/plan_peers.py puts these figures beside JAX Splash's and\n"
      "PyTorch FlexAttention's on the same documents.";
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::bench
