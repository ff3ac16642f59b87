// cli/run/report.cc: a run's receipt, and the same in words.
#include "cli/run/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "base/text.h"
#include "cli/plan/report.h"
#include "receipt/digests.h"

namespace tessera::cli {
namespace {

Receipt::Inputs inputs_of(const RunFlags& flags, const RunOptions& o) {
  const AttentionData& d = o.data;
  Receipt::Inputs out;
  out.seed = o.seed;
  out.file = flags.inputs.value_or("");
  const auto add = [&](const char* name, std::string digest) {
    out.digests[name] = std::move(digest);
    if (!o.inputs || !o.inputs->has(name)) out.drawn.push_back(name);
  };
  add("q", array_digest(d.q.view()));
  add("k", array_digest(d.k.view()));
  add("v", array_digest(d.v.view()));
  if (d.sink_logits) add("sink_logits", array_digest(*d.sink_logits));
  if (!d.backward) return out;
  add("dout", array_digest(d.dout.view()));
  if (!d.dlse.empty()) add("dlse", array_digest(d.dlse));
  return out;
}

// 0.012 ms, 3.4 ms, 12.3 s: three digits that count.
std::string time_text(double ms) {
  if (ms >= 1000) return fmt::format("{:.3g} s", ms / 1000);
  return ms >= 100 ? fmt::format("{:.0f} ms", ms)
                   : fmt::format("{:.3g} ms", ms);
}

std::string plural(int64_t n, std::string_view one) {
  return fmt::format("{} {}{}", n, one, n == 1 ? "" : "s");
}

std::string plugin_text(const Receipt::Plugin& p) {
  return fmt::format("{}, PJRT {}, {} of platform {}",
                     in_quotes(p.file, p.file.size()), p.api, p.device,
                     p.platform);
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

void add_given(const RunFlags& flags, const RunOptions& o,
               const Planned& planned, Receipt& r) {
  r.lane.source = flags.lane ? "flag" : "default";
  take_given(planned.given, r.request);
  r.plan_file = flags.request.plan.value_or("");
  r.shape.layout = to_string(o.data.layout);
  r.inputs = inputs_of(flags, o);
  r.artifact.file = flags.artifact.value_or("");
  r.artifact.shapes_file = flags.shapes.value_or("");
}

std::string run_text(const Receipt& r) {
  const AttentionShape& s = r.shape.attention;
  std::string out;
  const auto line = [&](std::string_view name, const std::string& text) {
    out += fmt::format("{:<11} {}\n", name, text);
  };
  line("ran",
       fmt::format("{} lane{}, {}{}{}", r.lane.executed,
                   r.fallback                   ? " (fallback)"
                   : r.lane.requested == "auto" ? " (chosen)"
                                                : "",
                   r.isa ? fmt::format("{}, {}, ", *r.isa,
                                       plural(r.threads.value_or(1), "thread"))
                         : "",
                   r.method.empty() ? "" : r.method + ", ", r.device));
  if (r.lane.requested == "auto") line("choice", r.choice.reason);
  if (r.fallback) line("fallback", *r.fallback);
  if (r.plugin) line("plugin", plugin_text(*r.plugin));
  for (const std::string& mask : r.request.masks) line("mask", mask);
  line(
      "arrays",
      fmt::format("{} batch row{}, {} x {} tokens, {} ({} K/V), head dim {}{}, "
                  "{} {}",
                  *r.request.batch, *r.request.batch == "1" ? "" : "s",
                  *r.request.q_len, *r.request.kv_len, plural(s.heads, "head"),
                  s.kv_heads, s.head_dim,
                  s.v_head_dim == s.head_dim
                      ? ""
                      : fmt::format(", values {}", s.v_head_dim),
                  r.shape.dtype, r.shape.layout));
  const bool counted = r.lane.executed != "jax_bridge";
  if (r.tiles_run + r.tiles_skipped > 0) {
    line("tiles",
         fmt::format("{} run, {} skipped", r.tiles_run, r.tiles_skipped));
  } else {
    line("tiles", counted ? "none: this lane goes pair by pair"
                          : "not counted: the program is JAX's");
  }
  const auto pairs = [](int64_t n) {
    return with_unit(static_cast<double>(n));
  };
  line("pairs",
       fmt::format(
           "{} legal{}", pairs(r.pairs_legal),
           counted ? fmt::format(", {} scored", pairs(r.pairs_run)) : ""));
  if (r.plugin) {
    line("programs",
         fmt::format("{} compiled, {} from memory, {} from disk", r.compiles,
                     r.cache_hits.memory, r.cache_hits.disk));
  }
  if (r.routing) {
    const Receipt::Routing& n = *r.routing;
    line("routing",
         fmt::format(
             "{}, top {} of blocks of {}, {}: unions of {:.2f} blocks, "
             "{} at most, for {} queries, in {}",
             n.given ? "given" : to_string(n.settings.rule), n.settings.top,
             n.settings.block, to_string(n.settings.meaning),
             static_cast<double>(n.union_blocks) /
                 static_cast<double>(n.tile_rows),
             n.widest_union, n.settings.query_tile, time_text(r.route_ms)));
  }
  line("time",
       fmt::format(
           "{}prepare {}, {}forward {}{}",
           r.plan_file.empty() ? fmt::format("plan {}, ", time_text(r.plan_ms))
                               : "",
           time_text(r.prepare_ms),
           r.plugin
               ? fmt::format("compile {}, transfer {}, ",
                             time_text(r.compile_ms), time_text(r.transfer_ms))
               : "",
           time_text(r.forward_ms),
           r.backward ? ", backward " + time_text(r.backward_ms) : ""));
  line("speed",
       fmt::format("{:.4g} GFLOP/s, legal pairs only", r.useful_gflops()));
  if (r.check.kind != "none") line("check", check_text(r.check));
  line("digest", r.output_digest);
  return out;
}

}  // namespace tessera::cli
