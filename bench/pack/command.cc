// bench/pack/command.cc: `tessera-bench pack`: speed, fill and balance of
// packing lognormal documents into rows.
#include "cli/command.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "bench/commands.h"
#include "bench/harness/flags.h"
#include "bench/pack/measure.h"
#include "receipt/machine.h"
#include "request/numbers.h"
#include "tessera/version.h"

namespace tessera::bench {

using cli::add_flags;
using cli::Command;
using cli::kOk;
using request::parse_int;
using request::parse_positive;

namespace {

using nlohmann::json;

struct Options {
  std::string documents = "10000000", mean = "1500", tokens = "8192",
              rounds = "5";
  bool json = false;
  std::optional<std::string> out;
};

Result<PackCase> case_of(const Options& o) {
  PackCase c;
  auto documents = parse_int(o.documents, "--documents", 1, 1 << 30);
  if (!documents) return documents.error();
  c.documents = *documents;
  auto mean = parse_positive(o.mean, "--mean");
  if (!mean) return mean.error();
  c.mean = *mean;
  auto tokens = parse_int(o.tokens, "--tokens", 1, kMaxRowTokens);
  if (!tokens) return tokens.error();
  c.tokens = *tokens;
  auto rounds = parse_int(o.rounds, "--rounds", 1, 1000);
  if (!rounds) return rounds.error();
  c.rounds = *rounds;
  return c;
}

json cost_json(const PackRow& row, const PackCost& cost) {
  return {{"strategy", to_string(row.strategy)},
          {"mixing", row.mixing},
          {"documents_per_second", cost.documents_per_second},
          {"fill", cost.account.fill()},
          {"rows", cost.account.rows},
          {"cost_max_over_mean", cost.balance.max_over_mean},
          {"cost_worst_step", cost.balance.worst},
          {"length_spread", cost.balance.length_spread}};
}

// Measures the peer in the same run.
json peer_json(const PackCase& c, bool print) {
  constexpr int32_t kOpen = 8;
  const OpenRowsCost peer = measure_open_rows(c, kOpen);
  if (print) {
    fmt::print("{:<9} {:>6} {:>8.1f} {:>7.5f}\n", fmt::format("{} open", kOpen),
               "", peer.documents_per_second / 1e6, peer.fill);
  }
  return {{"open_rows", kOpen},
          {"documents_per_second", peer.documents_per_second},
          {"fill", peer.fill},
          {"rows", peer.rows}};
}

Result<int> run(const Options& o) {
  auto c = case_of(o);
  if (!c) return c.error();
  if (auto e = check_result(o.out); !e) return e.error();
  json rows = json::array();
  if (!o.json) {
    fmt::print("{:<9} {:>6} {:>8} {:>7} {:>9} {:>7} {:>7}\n", "strategy",
               "mixing", "M docs/s", "fill", "max/mean", "worst", "spread");
  }
  for (const PackRow& row : pack_table()) {
    auto cost = measure_pack(*c, row);
    if (!cost) return cost.error();
    rows.push_back(cost_json(row, *cost));
    if (o.json) continue;
    fmt::print("{:<9} {:>6} {:>8.1f} {:>7.5f} {:>9.4f} {:>7.3f} {:>7.3f}\n",
               to_string(row.strategy), row.mixing,
               cost->documents_per_second / 1e6, cost->account.fill(),
               cost->balance.max_over_mean, cost->balance.worst,
               cost->balance.length_spread);
  }
  const json peers = json::array({peer_json(*c, !o.json)});
  const json out = {{"bench", "pack"},
                    {"version", kVersion},
                    {"cpu", receipt::cpu_model()},
                    {"documents", c->documents},
                    {"mean", c->mean},
                    {"tokens", c->tokens},
                    {"rounds", c->rounds},
                    {"rows_per_step", 8},
                    {"window_rows", 4096},
                    {"mask", "causal & documents"},
                    {"cases", rows},
                    {"peers", peers}};
  if (auto e = write_result(o.out, out); !e) return e.error();
  if (o.json) fmt::print("{}\n", out.dump());
  return kOk;
}

}  // namespace

Command pack_command() {
  auto o = std::make_shared<Options>();
  Command command{"pack", "The packer: speed, fill and even steps"};
  add_flags(command,
            {{"--documents", &o->documents, "N",
              "Documents whose lengths are drawn [10000000]"},
             {"--mean", &o->mean, "N",
              "Mean of their lengths, lognormal, sigma 1 [1500]"},
             {"--tokens", &o->tokens, "N", "Tokens of a row [8192]"},
             {"--rounds", &o->rounds, "N",
              "Rounds of timing; the fastest counts [5]"},
             {"--json", &o->json, "", "One JSON object on stdout"},
             {"-o,--out", &o->out, "FILE", "Write the JSON here too"}});
  command.footer =
      "Lengths alone are packed, on one thread, window after window into\n"
      "memory that serves again. Beside them what anyone would write first: a\n"
      "document goes to the fullest of 8 open rows that it fits; where it "
      "fits\n"
      "none, the fullest of them is closed.";
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::bench
