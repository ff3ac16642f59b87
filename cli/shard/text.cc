// cli/shard/text.cc: shards as text.
#include <fmt/format.h>

#include <algorithm>

#include "cli/plan/report.h"
#include "cli/shard/report.h"

namespace tessera::cli {
namespace {

// The most shards for which each one gets a line.
constexpr size_t kMaxLines = 64;
constexpr int64_t kBarColumns = 30;

std::string bar(double x, double most) {
  const auto n = static_cast<size_t>(
      most > 0 ? x / most * static_cast<double>(kBarColumns) + 0.5 : 0);
  return std::string(n, '#');
}

std::string megabytes(int64_t bytes) {
  return fmt::format("{:.2f} MB", static_cast<double>(bytes) / 1e6);
}

std::string moved_text(const char* name, const Moved& m) {
  return fmt::format(
      "{:<11} needs {} ({:.1f}% of an all-gather's {}), sends {} ({:.1f}%){}, "
      "busiest {}\n",
      name, megabytes(m.needed), 100 * beside_all_gather(m, m.needed),
      megabytes(m.all_gather), megabytes(m.sent),
      100 * beside_all_gather(m, m.sent),
      m.capacity == m.sent ? "" : " with room for " + megabytes(m.capacity),
      megabytes(m.busiest));
}

std::string_view exchange_text(TileExchange exchange) {
  if (exchange == TileExchange::ragged) return "a ragged exchange";
  if (exchange == TileExchange::gather) return "an all-gather of K and V";
  return "rounds";
}

std::string rounds_text(const char* name, const Traffic& traffic) {
  if (traffic.rounds.empty()) return {};
  std::string out = fmt::format("{:<11}", name);
  for (const Round& r : traffic.rounds) {
    out += fmt::format(" +{}:{}", r.shift, r.capacity);
  }
  return out + " (shift:tiles)\n";
}

std::string lines_text(const Shards& s, const ShardReport& r) {
  int64_t most = 0;
  for (const Shard& one : s.shards) most = std::max(most, one.work);
  const auto seq = static_cast<size_t>(s.mesh.size("seq"));
  std::string out =
      fmt::format("\n{:>4} {:>4} {:>4} {:>6} {:>9} {:>8} {:>8}  work\n", "data",
                  "head", "seq", "rows", "steps", "from all", "to all");
  for (const Shard& one : s.shards) {
    int64_t in = 0;
    int64_t to = 0;
    const auto self = static_cast<size_t>(one.seq);
    for (size_t i = 0; i < seq; ++i) {
      in += r.kv_tiles[i * seq + self];
      to += r.kv_tiles[self * seq + i];
    }
    out += fmt::format(
        "{:>4} {:>4} {:>4} {:>6} {:>9} {:>8} {:>8}  {}\n", one.data, one.head,
        one.seq, one.own_rows, one.steps, in, to,
        bar(static_cast<double>(one.work), static_cast<double>(most)));
  }
  return out + "from all, to all: K/V tiles, over all data and head groups\n";
}

}  // namespace

std::string shard_text(const ShardRun& run) {
  const Shards& s = run.shards;
  const ShardReport& r = s.report;
  std::string out = fmt::format(
      "{:<11} {}: {} shards, {}, {}\n{:<11} max/mean {:.3f}, {:.1f}% needs no "
      "tile of others{}\n{:<11} max/mean {:.3f}\n",
      "mesh", to_string(s.mesh), s.shards.size(),
      to_string(run.options.balance), exchange_text(s.exchange), "work",
      r.work_max_over_mean, 100 * r.early_work,
      run.options.work == TileWork() ? "" : "; " + to_string(run.options.work),
      "tokens", r.tokens_max_over_mean);
  out += moved_text("forward", r.forward);
  out += fmt::format("{:<11} {} ({:.1f}%), however rows are spread so evenly\n",
                     "at least", megabytes(r.least_needed),
                     100 * beside_all_gather(r.forward, r.least_needed));
  out += moved_text("backward", r.backward);
  if (!s.q.rounds.empty() && r.forward.sent > r.forward.all_gather) {
    out += fmt::format(
        "{:<11} forward sends more than an all-gather of K and V; balance rows "
        "may send less\n",
        "note");
  }
  if (s.exchange != TileExchange::gather) {
    out += rounds_text("K/V rounds", s.kv);
  }
  out += rounds_text("q rounds", s.q);
  out += fmt::format(
      "{:<11} {} query tiles, {} key tiles, {} steps\n{:<11} {}\n{:<11} {}\n"
      "{:<11} {}\n",
      "room", s.shapes.rows, s.shapes.columns, s.shapes.steps, "ceilings",
      to_string(ceilings_of(s)), "contract", s.contract_key,
      run.saved_plan ? "sharded in" : "planned in", took_once(run.plan_ns));
  if (s.shards.size() > kMaxLines) {
    out +=
        fmt::format("{:<11} {} (--json has each)\n", "shards", s.shards.size());
  } else {
    out += lines_text(s, r);
  }
  return run.program ? out + report_text(*run.program) : out;
}

}  // namespace tessera::cli
