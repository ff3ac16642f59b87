// bench/attention/rows.cc: derives ratios, shares and goals of a row.
#include "bench/attention/rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/dtype_word.h"

namespace tessera::bench {
namespace {

using nlohmann::json;

double our_ms(const BenchRow& row) { return times_of(row.ours->ms).best_ms; }

json times_json(const RunTimes& t) {
  return {{"ms", t.best_ms}, {"median_ms", t.median_ms}, {"runs", t.runs}};
}

json optional_json(const std::optional<double>& value) {
  return value ? json(*value) : json();
}

// GFLOP/s, or GB/s with its unit: rows of both kinds share a column.
std::string speed(const BenchRow& row, double ms) {
  if (row.what->decode) return fmt::format("{:.1f} GB/s", gbytes(row, ms));
  return fmt::format("{:.1f}", gflops(row, ms));
}

std::string goal_words(const Goal& goal) {
  std::string out;
  if (goal.ratio > 0) out = fmt::format("{:.2f}", goal.ratio);
  if (goal.share > 0) {
    out += fmt::format("{}{:.0f}%", out.empty() ? "" : ", ", goal.share * 100);
  }
  return out;
}

}  // namespace

OurTimes joined(const OurTimes& a, const OurTimes& b) {
  OurTimes out = a;
  out.ms.insert(out.ms.end(), b.ms.begin(), b.ms.end());
  out.prepare_ms = std::min(a.prepare_ms, b.prepare_ms);
  if (b.check.max_bound_ratio > a.check.max_bound_ratio) out.check = b.check;
  out.other_cores = std::max(a.other_cores, b.other_cores);
  return out;
}

double gflops(const BenchRow& row, double ms) {
  const CaseShape shape = shape_of(*row.what, row.tokens);
  return operations_per_pair(row.direction, row.head_dim) *
         static_cast<double>(row.pairs) * static_cast<double>(shape.heads) /
         ms / 1e6;
}

double gbytes(const BenchRow& row, double ms) {
  const CaseShape shape = shape_of(*row.what, row.tokens);
  return 2.0 * static_cast<double>(shape.kv_heads * shape.kv_len) *
         static_cast<double>(row.head_dim * byte_width(row.dtype)) / ms / 1e6;
}

std::optional<double> share_of_peak(const BenchRow& row) {
  if (!row.ours) return {};
  const double peak = row.what->decode           ? row.peaks.read_gbytes
                      : row.dtype == Dtype::bf16 ? row.peaks.bf16_dot_gflops
                                                 : row.peaks.fma_gflops;
  if (peak <= 0) return {};
  const double ms = our_ms(row);
  return (row.what->decode ? gbytes(row, ms) : gflops(row, ms)) / peak;
}

const PeerTimes* best_peer(const BenchRow& row) {
  const PeerTimes* best = nullptr;
  for (const PeerTimes& p : row.peers) {
    if (!p.times) continue;
    if (!best || p.times->best_ms < best->times->best_ms) best = &p;
  }
  return best;
}

std::optional<double> ratio(const BenchRow& row) {
  const PeerTimes* best = best_peer(row);
  if (!row.ours || !best) return {};
  return best->times->best_ms / our_ms(row);
}

std::optional<bool> reached(const BenchRow& row) {
  const Goal goal = goal_of(*row.what, row.dtype, row.direction);
  const std::optional<double> r = ratio(row);
  const std::optional<double> share = share_of_peak(row);
  if (goal.ratio == 0 && goal.share == 0) return {};
  if (goal.ratio > 0 && r && *r < goal.ratio) return false;
  if (goal.share > 0 && share && *share < goal.share) return false;
  if (goal.ratio > 0 && (!r || !row.every_peer_ran)) return {};
  if (goal.share > 0 && !share) return {};
  return true;
}

json row_json(const BenchRow& row) {
  const CaseShape shape = shape_of(*row.what, row.tokens);
  const Goal goal = goal_of(*row.what, row.dtype, row.direction);
  json out = {{"case", row.what->name},
              {"mask", row.what->mask},
              {"softcap", row.what->softcap},
              {"dtype", dtype_word(row.dtype)},
              {"direction", to_string(row.direction)},
              {"q_len", shape.q_len},
              {"kv_len", shape.kv_len},
              {"heads", shape.heads},
              {"kv_heads", shape.kv_heads},
              {"head_dim", row.head_dim},
              {"threads", row.threads},
              {"pairs", row.pairs}};
  if (row.ours) {
    const double ms = our_ms(row);
    json ours = times_json(times_of(row.ours->ms));
    ours["prepare_ms"] = row.ours->prepare_ms;
    ours["check"] = {{"kind", row.ours->check.kind},
                     {"rows", row.ours->check.rows},
                     {"max_ratio", row.ours->check.max_bound_ratio},
                     {"worst", row.ours->check.worst}};
    ours["other_cores"] = row.ours->other_cores;
    ours["gflops"] = gflops(row, ms);
    if (row.what->decode) ours["gbytes"] = gbytes(row, ms);
    ours["share_of_peak"] = optional_json(share_of_peak(row));
    out["ours"] = std::move(ours);
  } else {
    out["ours"] = nullptr;
    out["why"] = row.why;
  }
  json peers = json::array();
  for (const PeerTimes& p : row.peers) {
    json peer = {{"peer", p.peer}};
    if (p.times) {
      peer.update(times_json(*p.times));
      peer["error"] = p.error;
      peer["gflops"] = gflops(row, p.times->best_ms);
      if (row.what->decode) peer["gbytes"] = gbytes(row, p.times->best_ms);
    } else {
      peer["why"] = p.why;
    }
    peers.push_back(std::move(peer));
  }
  out["peers"] = std::move(peers);
  const PeerTimes* best = best_peer(row);
  out["best_peer"] = best ? json(best->peer) : json();
  out["ratio"] = optional_json(ratio(row));
  out["goal"] = {{"ratio", goal.ratio > 0 ? json(goal.ratio) : json()},
                 {"share", goal.share > 0 ? json(goal.share) : json()}};
  const std::optional<bool> met = reached(row);
  out["reached"] = met ? json(*met) : json();
  return out;
}

std::string table_header() {
  return fmt::format(
      "{:<9} {:<4} {:<16} {:>11} {:>6}  {:<24} {:>11} {:>5} {}\n", "case",
      "type", "direction", "GFLOP/s", "peak", "best peer", "GFLOP/s", "ratio",
      "goal");
}

std::string table_line(const BenchRow& row) {
  std::string out =
      fmt::format("{:<9} {:<4} {:<16} ", row.what->name, dtype_word(row.dtype),
                  to_string(row.direction));
  if (!row.ours) return out + "not measured: " + row.why + "\n";
  const std::optional<double> share = share_of_peak(row);
  out += fmt::format("{:>11} {:>6}  ", speed(row, our_ms(row)),
                     share ? fmt::format("{:.0f}%", *share * 100) : "");
  const PeerTimes* best = best_peer(row);
  const std::optional<double> r = ratio(row);
  out += fmt::format("{:<24} {:>11} {:>5}", best ? best->peer : "not measured",
                     best ? speed(row, best->times->best_ms) : "",
                     r ? fmt::format("{:.2f}", *r) : "");
  const Goal goal = goal_of(*row.what, row.dtype, row.direction);
  if (const std::string words = goal_words(goal); !words.empty()) {
    const std::optional<bool> met = reached(row);
    out += fmt::format(" {} {}", words,
                       !met   ? "not measured"
                       : *met ? "reached"
                              : "MISSED");
  }
  return out + "\n";
}

}  // namespace tessera::bench
