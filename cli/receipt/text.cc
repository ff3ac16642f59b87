// cli/receipt/text.cc: what `tessera run`, `tessera bridge` and `tessera
// receipt show` print.
#include "cli/receipt/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/text.h"
#include "cli/plan/report.h"

namespace tessera::cli {
namespace {

// 0.012 ms, 3.4 ms, 12.3 s: three digits that count.
std::string time_text(double ms) {
  if (ms >= 1000) return fmt::format("{:.3g} s", ms / 1000);
  return ms >= 100 ? fmt::format("{:.0f} ms", ms)
                   : fmt::format("{:.3g} ms", ms);
}

std::string plural(int64_t n, std::string_view one) {
  return fmt::format("{} {}{}", n, one, n == 1 ? "" : "s");
}

// Receipts come from strangers: each line is made fit to print.
class Lines {
 public:
  void operator()(std::string_view name, std::string_view text) {
    out += fmt::format("{:<11} {}\n", name, on_a_line(text));
  }
  std::string out;
};

void add_question(const receipt::Receipt& r, Lines& line) {
  line("asked", fmt::format("{} (by {})", r.lane.requested, r.lane.source));
  if (r.of_plan) {
    line("chosen", fmt::format("{}: {}", r.lane.chosen, r.choice.reason));
  }
  line("executed",
       fmt::format("{}, family {}",
                   r.ran() ? r.lane.executed : "nothing: compiled only",
                   r.lane.family));
  for (const auto& [lane, reason] : r.choice.rejected) {
    line("not " + lane, reason);
  }
}

void add_place(const receipt::Receipt& r, Lines& line) {
  line("ran",
       fmt::format("{} lane{}{}{}{}", r.lane.executed,
                   r.fallback                   ? " (fallback)"
                   : r.lane.requested == "auto" ? " (chosen)"
                                                : "",
                   r.isa ? fmt::format(", {}, {}", *r.isa,
                                       plural(r.threads.value_or(1), "thread"))
                         : "",
                   r.method.empty() ? "" : ", " + r.method,
                   r.of_plan ? ", " + r.device : ", family " + r.lane.family));
  if (r.of_plan && r.lane.requested == "auto") line("choice", r.choice.reason);
}

void add_plugin(const receipt::Receipt& r, Lines& line) {
  if (r.fallback) line("fallback", *r.fallback);
  if (r.plugin) {
    line("plugin",
         fmt::format("'{}', PJRT {}, {} of platform {}", r.plugin->file,
                     r.plugin->api, r.plugin->device, r.plugin->platform));
  }
  if (r.shards) {
    line("shards",
         fmt::format(
             "{}, {}, work {:.3f} of the mean, {} bytes sent forward "
             "({} needed){}",
             r.shards->mesh, r.shards->balance, r.shards->work_max_over_mean,
             r.shards->sent, r.shards->needed,
             r.backward ? fmt::format(", {} backward", r.shards->sent_backward)
                        : std::string()));
  }
}

std::string arrays_text(const std::vector<receipt::Receipt::Array>& arrays) {
  std::string out;
  for (const receipt::Receipt::Array& a : arrays) {
    out += fmt::format("{}'{}' {} [{}]", out.empty() ? "" : ", ", a.name,
                       a.dtype, fmt::join(a.shape, ", "));
  }
  return out.empty() ? "none" : out;
}

void add_operation(const receipt::Receipt& r, Lines& line) {
  line("operation", fmt::format("{} {}", r.operation, r.name));
  if (r.artifact) {
    line("artifact",
         fmt::format("'{}', exported by JAX {}, digest {}", r.artifact->file,
                     r.artifact->jax, r.artifact->digest));
  }
  line("inputs",
       fmt::format("{} ({})", arrays_text(r.inputs.arrays),
                   r.inputs.file.empty() ? fmt::format("seed {}", r.inputs.seed)
                                         : "'" + r.inputs.file + "'"));
  line("outputs", arrays_text(r.outputs));
  line("key", r.key.digest +
                  ", wider than a kernel contract: the artifact and its "
                  "shapes");
}

void add_work(const receipt::Receipt& r, Lines& line) {
  for (const std::string& mask : r.request.masks) line("mask", mask);
  const AttentionShape& s = r.shape.attention;
  const receipt::RequestText& request = r.request;
  const std::string batch = request.batch.value_or("");
  line("arrays",
       fmt::format("{} batch row{}, {} x {} tokens, {} ({} K/V), head dim "
                   "{}{}, {} {}{}",
                   batch, batch == "1" ? "" : "s", request.q_len.value_or(""),
                   request.kv_len.value_or(""), plural(s.heads, "head"),
                   s.kv_heads, s.head_dim,
                   s.v_head_dim == s.head_dim
                       ? ""
                       : fmt::format(", values {}", s.v_head_dim),
                   r.shape.dtype, r.shape.layout,
                   r.backward ? ", with backward" : ""));
  const bool counted = r.lane.executed != "jax_bridge";
  if (r.tiles_run > 0 || r.tiles_skipped > 0) {
    line("tiles",
         fmt::format("{} run, {} skipped", r.tiles_run, r.tiles_skipped));
  } else if (r.ran()) {
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
}

void add_routing(const receipt::Receipt::Routing& n, double ms, Lines& line) {
  line("routing",
       fmt::format("{}, top {} of blocks of {}, {}: unions of {:.2f} blocks, "
                   "{} at most, for {} queries, in {}",
                   n.given ? "given" : to_string(n.settings.rule),
                   n.settings.top, n.settings.block,
                   to_string(n.settings.meaning),
                   static_cast<double>(n.union_blocks) /
                       static_cast<double>(n.tile_rows),
                   n.widest_union, n.settings.query_tile, time_text(ms)));
  line("reads",
       fmt::format("{} keys by tile rows that need {}; {} bytes of K "
                   "and V more, beside {} of all, a layer",
                   n.read_keys, n.needed_keys, n.extra_bytes, n.cache_bytes));
}

void add_times(const receipt::Receipt& r, Lines& line) {
  std::string out;
  const auto add = [&](std::string_view what, double ms) {
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", what, time_text(ms));
  };
  if (r.of_plan && r.plan_file.empty()) add("plan", r.plan_ms);
  if (r.of_plan) add("prepare", r.prepare_ms);
  if (r.plugin) {
    add("compile", r.compile_ms);
    add("transfer", r.transfer_ms);
  }
  add(r.of_plan ? "forward" : "run", r.of_plan ? r.forward_ms : r.run_ms);
  if (r.backward) add("backward", r.backward_ms);
  line("time", out);
  if (!r.of_plan || !r.ran()) return;
  line("speed",
       fmt::format("{:.4g} GFLOP/s, legal pairs only", r.useful_gflops_due()));
}

std::string check_text(const receipt::Receipt::Check& c) {
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

std::string receipt_text(const receipt::Receipt& r, bool whole) {
  Lines line;
  if (whole) add_question(r, line);
  if (r.ran()) add_place(r, line);
  add_plugin(r, line);
  if (r.of_plan) {
    add_work(r, line);
  } else {
    add_operation(r, line);
  }
  if (r.plugin) {
    line("programs",
         fmt::format("{} compiled, {} from memory, {} from disk", r.compiles,
                     r.cache_hits.memory, r.cache_hits.disk));
  }
  if (r.routing) add_routing(*r.routing, r.route_ms, line);
  add_times(r, line);
  if (whole || r.check.kind != "none") {
    line("check", r.check.kind == "none" ? "none" : check_text(r.check));
  }
  if (whole && r.of_plan) {
    line("contract", r.contract);
    line("plan", r.plan_digest.empty() ? "none" : r.plan_digest);
  }
  line("output", r.output_digest.empty() ? "none" : r.output_digest);
  return std::move(line.out);
}

}  // namespace tessera::cli
