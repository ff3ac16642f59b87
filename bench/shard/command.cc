// bench/shard/command.cc: `tessera-bench shard`: balance and traffic of each
// way to spread a batch.
#include "cli/command.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "bench/commands.h"
#include "bench/harness/flags.h"
#include "bench/shard/measure.h"
#include "receipt/machine.h"
#include "request/numbers.h"
#include "tessera/version.h"

namespace tessera::bench {

using cli::add_flags;
using cli::Command;
using cli::kOk;

namespace {

using nlohmann::json;

struct Options {
  std::optional<std::string> seeds, out;
  bool frontier = false;
  bool json = false;
};

json spread_json(const Spread& s) {
  return {{"median", s.median}, {"p90", s.p90}};
}

std::string beside(const Spread& s) {
  return fmt::format("{:.1f} ({:.1f})", 100 * s.median, 100 * s.p90);
}

void print_row(const ShardCase& c, const ShardWay& way, const ShardFigures& f) {
  fmt::print(
      "{:>8} {:>6.0f} {:>3} {:<10} {:<6} {:>4.2f} {:>4.2f} "
      "{:>5.3f} ({:.3f}) {:>5.3f} ({:.3f}) "
      "{:>6.1f} {:>13} {:>15} {:>13} {:>6.2f} {:>6.2f}\n",
      c.tokens, c.mean, c.shards, to_string(way.balance),
      to_string(way.exchange), way.evenness.work, way.evenness.tokens,
      f.work.median, f.work.p90, f.tokens.median, f.tokens.p90,
      100 * f.least.median, beside(f.needed), beside(f.sent), beside(f.late),
      f.plan_ms, f.shard_ms);
}

bool reached(const ShardCase& c, const ShardFigures& f) {
  return f.work.median <= kGoalWork && f.tokens.median <= kGoalTokens &&
         f.needed.median <= c.goal_needed && f.sent.median <= c.goal_sent;
}

Result<int> run(const Options& o) {
  auto seeds = request::parse_int(o.seeds.value_or("16"), "--seeds", 1, 1000);
  if (!seeds) return seeds.error();
  if (auto e = check_result(o.out); !e) return e.error();
  if (!o.json) {
    fmt::print(
        "causal & documents, tile 256, 32 heads on 8, {} seeds: median (p90). "
        "Bytes in % of an\nall-gather of K and V; least: what any way as even "
        "must send; aim: work and tokens,\nmax/mean; late: of the forward "
        "work, in %, what waits for tiles of others; ms on one core of\n{}.\n\n"
        "{:>8} {:>6} {:>3} {:<10} {:<6} {:<9} {:>13} {:>13} {:>6} {:>13} "
        "{:>15} "
        "{:>13} {:>6} {:>6}\n",
        *seeds, receipt::cpu_model(), "tokens", "mean", "n", "balance", "how",
        "aim", "work max/mean", "tokens", "least", "needed", "sent", "late",
        "plan", "shard");
  }
  json rows = json::array();
  for (const ShardCase& c : shard_cases()) {
    for (const ShardWay& way : o.frontier ? frontier_ways() : shard_ways()) {
      auto f = measure_shards(c, way, *seeds);
      if (!f) return f.error();
      if (!o.json) print_row(c, way, *f);
      rows.push_back({{"tokens", c.tokens},
                      {"mean", c.mean},
                      {"shards", c.shards},
                      {"balance", to_string(way.balance)},
                      {"exchange", to_string(way.exchange)},
                      {"work_wanted", way.evenness.work},
                      {"tokens_wanted", way.evenness.tokens},
                      {"work_max_over_mean", spread_json(f->work)},
                      {"tokens_max_over_mean", spread_json(f->tokens)},
                      {"least_beside_all_gather", spread_json(f->least)},
                      {"needed_beside_all_gather", spread_json(f->needed)},
                      {"sent_beside_all_gather", spread_json(f->sent)},
                      {"backward_needed", spread_json(f->backward_needed)},
                      {"backward_sent", spread_json(f->backward_sent)},
                      {"late_work", spread_json(f->late)},
                      {"plan_ms", f->plan_ms},
                      {"shard_ms", f->shard_ms},
                      {"goals_reached", reached(c, *f)}});
    }
    if (!o.json) {
      fmt::print(
          "{:>8} {:>6} {:>3} {:<10} {:<6} {:<9} {:>13} {:>13} {:>6} {:>13} "
          "{:>15}\n",
          "", "", "", "goal", "", "", kGoalWork, kGoalTokens, "",
          100 * c.goal_needed, 100 * c.goal_sent);
    }
  }
  const json out = {
      {"bench", "shard"}, {"version", kVersion}, {"cpu", receipt::cpu_model()},
      {"seeds", *seeds},  {"tile", {256, 256}},  {"rows", rows}};
  if (auto e = write_result(o.out, out); !e) return e.error();
  if (o.json) fmt::print("{}\n", out.dump());
  return kOk;
}

}  // namespace

Command shard_command() {
  auto o = std::make_shared<Options>();
  Command command{"shard",
                  "Batches over many devices: how even, and what travels"};
  add_flags(command,
            {
                {"--seeds", &o->seeds, "N", "Batches of each case [16]"},
                {"--frontier", &o->frontier, "",
                 "Balances rows and tasks, from even to uneven, beside what "
                 "must travel"},
                {"--json", &o->json, "", "One JSON object on stdout"},
                {"-o,--out", &o->out, "FILE", "Write the JSON here too"},
            });
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::bench
