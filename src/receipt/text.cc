// receipt/text.cc: what `tessera run`, `tessera bridge` and `tessera
// receipt show` print.
#include "receipt/text.h"

#include <fmt/format.h>

#include <utility>

#include "receipt/lines.h"

namespace tessera::receipt {
namespace {

void add_question(const Receipt& r, Lines& line) {
  line("asked", fmt::format("{} (by {})", r.lane.requested, r.lane.source));
  if (r.of_plan()) {
    line("chosen", fmt::format("{}: {}", r.lane.chosen, r.choice.reason));
  }
  line("executed",
       fmt::format("{}, family {}",
                   r.ran() ? r.lane.executed : "nothing: compiled only",
                   r.lane.family));
  for (const GateRow& row : r.choice.gate) line("gate", gate_words(row));
  for (const auto& [lane, reason] : r.choice.rejected) {
    line("not " + lane, reason);
  }
}

// The terms of our TPU kernels that differ from a session's defaults.
std::string terms_of(const Receipt& r) {
  std::string out;
  if (r.numbers == "finite") out += ", of finite numbers";
  if (r.row_sum == "rounded") out += ", of rounded row sums";
  return out;
}

void add_place(const Receipt& r, Lines& line) {
  line("ran", fmt::format(
                  "{} lane{}{}{}{}", r.lane.executed,
                  r.fallback                   ? " (fallback)"
                  : r.lane.requested == "auto" ? " (chosen)"
                                               : "",
                  r.isa ? fmt::format(", {}, {}", *r.isa,
                                      plural(r.threads.value_or(1), "thread"))
                        : "",
                  r.method.empty() ? terms_of(r) : ", " + r.method,
                  r.of_plan() ? ", " + r.device : ", family " + r.lane.family));
  if (r.of_plan() && r.lane.requested == "auto") {
    line("choice", r.choice.reason);
  }
}

void add_plugin(const Receipt& r, Lines& line) {
  if (r.fallback) line("fallback", *r.fallback);
  if (r.plugin) {
    line("plugin",
         fmt::format("'{}', PJRT {}, {} of platform {}", r.plugin->file,
                     r.plugin->api, r.plugin->device, r.plugin->platform));
  }
  if (r.shards) {
    const auto sent = [](const Receipt::Moved& m) {
      return fmt::format("{} bytes sent, {} needed", m.sent, m.needed);
    };
    line("shards",
         fmt::format("{}, {}, {}, work {:.3f} of the mean, {}{}",
                     r.shards->mesh, r.shards->balance, r.shards->exchange,
                     r.shards->work_max_over_mean, sent(r.shards->forward),
                     r.shards->backward
                         ? "; backward " + sent(*r.shards->backward)
                         : std::string()));
  }
}

void add_programs(const Receipt& r, Lines& line) {
  if (!r.plugin) return;
  line("programs",
       fmt::format("{} compiled, {} from memory, {} from disk", r.compiles,
                   r.cache_hits.memory, r.cache_hits.disk));
}

void add_times(const Receipt& r, Lines& line) {
  std::string out;
  const auto add = [&](std::string_view what, double ms) {
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", what, time_text(ms));
  };
  const bool trained = r.kind == Kind::training;
  if (trained || (r.of_plan() && r.plan_file.empty())) add("plan", r.plan_ms);
  if (r.of_plan()) add("prepare", r.prepare_ms);
  if (r.plugin) {
    add("compile", r.compile_ms);
    add("transfer", r.transfer_ms);
  }
  add(r.of_plan() ? "forward" : "run", r.of_plan() ? r.forward_ms : r.run_ms);
  if (r.backward) add("backward", r.backward_ms);
  line("time", out);
  if (!r.of_plan() || !r.ran()) return;
  line("speed",
       fmt::format("{:.4g} GFLOP/s, legal pairs only", r.useful_gflops_due()));
}

std::string check_text(const Receipt::Check& c) {
  const std::string rows = c.kind == "full" ? "all " + plural(c.rows, "row")
                                            : plural(c.rows, "sampled row");
  if (!c.passed) {
    return fmt::format("FAILED: {}, {:.3g} times the error bound ({})", c.worst,
                       c.max_bound_ratio, rows);
  }
  return fmt::format(
      "passed: {}, {:.3g} % of the error bound at most, largest error {:.2g}",
      rows, 100 * c.max_bound_ratio, c.max_error);
}

}  // namespace

std::string gate_words(const GateRow& r) {
  return fmt::format(
      "{} row of {}: {}, {} x {} tokens, density {:.3g}, {}{}, of {}",
      to_string(r.basis), r.machine.empty() ? r.generation : r.machine, r.mask,
      r.q_len, r.kv_len, r.density, to_string(r.judgement),
      r.error ? fmt::format(", error {:.3g} of its bound", *r.error) : "",
      r.kernel);
}

std::string text_of(const Receipt& r, bool whole) {
  Lines line;
  if (r.kind == Kind::training) {
    add_training(r, line);
    if (r.lowering) add_lowering(*r.lowering, line);
    add_plugin(r, line);
    add_programs(r, line);
    add_times(r, line);
    line("output", r.output_digest);
    for (const std::string& warning : r.warnings) line("warning", warning);
    return std::move(line.out);
  }
  if (whole) add_question(r, line);
  if (r.ran()) add_place(r, line);
  add_plugin(r, line);
  if (r.of_plan()) {
    add_work(r, line);
    if (r.lowering) add_lowering(*r.lowering, line);
  } else {
    add_operation(r, line);
  }
  add_programs(r, line);
  if (r.routing) add_routing(*r.routing, r.route_ms, line);
  if (r.sink_telemetry) add_sinks(*r.sink_telemetry, line);
  add_times(r, line);
  if (whole || r.check.kind != "none") {
    line("check", r.check.kind == "none" ? "none" : check_text(r.check));
  }
  if (whole && r.of_plan()) {
    line("contract", r.contract);
    line("plan", r.plan_digest.empty() ? "none" : r.plan_digest);
  }
  line("output", r.output_digest.empty() ? "none" : r.output_digest);
  return std::move(line.out);
}

std::string claim_text(const ReceiptClaim& claim) {
  const auto digest = check_digest(claim);
  return fmt::format("{}{:<11} {}\n", text_of(claim, true), "digest",
                     digest ? claim.digest + ", that of its fields"
                            : "WRONG: " + digest.error().message);
}

}  // namespace tessera::receipt

namespace tessera {

Result<std::string> receipt_text(std::string_view json) {
  auto claim = receipt::parse_receipt(json);
  if (!claim) return claim.error();
  return receipt::claim_text(*claim);
}

}  // namespace tessera
