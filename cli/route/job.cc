// cli/route/job.cc: the request, then q and k or picks, from files or drawn.
#include "cli/route/job.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "base/threads.h"
#include "cli/numbers.h"
#include "cli/request/flags.h"
#include "cli/request/routed_picks.h"
#include "cli/run/options.h"
#include "picture/picture.h"
#include "receipt/machine.h"

namespace tessera::cli {
namespace {

constexpr const char* kDefaultMask = "causal & routed(top=8, block=256)";

// The last stage to run; nothing: all of them, then the plan.
Result<std::optional<RouteStage>> stage_of(const RouteCommandFlags& o) {
  if (!o.stage || *o.stage == "plan") return std::optional<RouteStage>();
  std::vector<std::string_view> names;
  for (int i = 0; i < kRouteStages; ++i) {
    const auto stage = static_cast<RouteStage>(i);
    if (*o.stage == to_string(stage)) return std::optional(stage);
    names.push_back(to_string(stage));
  }
  return invalid("cli", "--stage must be one of {}, plan, found {}",
                 fmt::join(names, ", "), in_quotes(*o.stage));
}

std::string arrays_text(const TensorView& q, const TensorView& k) {
  return fmt::format("{} head{} on {} of K, dim {}, {}", q.heads,
                     q.heads == 1 ? "" : "s", k.heads, q.dim,
                     to_string(q.dtype));
}

// Flags that say what to draw, where nothing is drawn.
Result<void> check_undrawn(const RouteCommandFlags& o,
                           std::string_view source) {
  for (const auto& [flag, name] :
       {std::pair(&o.run.heads, "--heads"),
        std::pair(&o.run.kv_heads, "--kv-heads"),
        std::pair(&o.run.head_dim, "--head-dim"),
        std::pair(&o.run.dtype, "--dtype"), std::pair(&o.run.seed, "--seed"),
        std::pair(&o.spread, "--spread")}) {
    if (!*flag) continue;
    return invalid("cli", "{} says what {} would, found both", source, name);
  }
  return {};
}

Result<void> read_arrays(const RouteCommandFlags& o, Layout layout,
                         RouteJob& job) {
  if (auto e = check_undrawn(o, "--inputs"); !e) return e;
  auto bytes = read_file(*o.run.inputs, available_memory());
  if (!bytes) return bytes.error();
  auto file = parse_safetensors(*bytes);
  if (!file) return file.error();
  auto q = read_array(*file, "q", layout);
  if (!q) return q.error();
  auto k = read_array(*file, "k", layout);
  if (!k) return k.error();
  job.q = std::move(*q);
  job.k = std::move(*k);
  job.arrays = true;
  job.report.inputs = fmt::format("q and k of {}", in_quotes(*o.run.inputs));
  return {};
}

// Inputs of `sizes`, once all that may be wrong has been looked at.
Result<void> draw_inputs(const RouteCommandFlags& o, const RunOptions& sizes,
                         Layout layout, RouteJob& job) {
  const AttentionShape& s = sizes.data.shape;
  DrawnInputs drawn{s.heads, s.kv_heads,       s.head_dim,
                    {},      sizes.data.dtype, layout};
  auto seed = parse_seed(o.run.seed.value_or("0"));
  if (!seed) return seed.error();
  drawn.clusters.seed = *seed;
  if (o.spread) {
    auto spread = parse_positive(*o.spread, "--spread");
    if (!spread) return spread.error();
    drawn.clusters.spread = *spread;
  }
  drawn.clusters.query_tile = job.settings.query_tile;
  drawn.clusters.block = job.settings.block;
  auto arrays = draw_arrays(drawn, job.settings, job.resolved.request,
                            job.resolved.facts.view(), job.options.threads);
  if (!arrays) return arrays.error();
  job.q = std::move(arrays->q);
  job.k = std::move(arrays->k);
  job.arrays = true;
  job.report.inputs = drawn.clusters.describe();
  return {};
}

// The request, with the lengths of q and k where they are from a file.
Result<void> read_request(const RouteCommandFlags& o, RouteJob& job) {
  RequestFlags flags = o.run.request;
  flags.picks.reset();
  if (flags.plan) {
    return invalid("cli", "--plan has its picks, found it for the router");
  }
  if (flags.masks.empty() && !flags.spec) flags.masks = {kDefaultMask};
  Lengths lengths;
  if (job.arrays) {
    lengths = {job.q.view().batch, job.q.view().tokens, job.k.view().tokens};
  }
  auto loaded = load_request(flags, lengths);
  if (!loaded) return loaded.error();
  job.resolved = std::move(loaded->resolved);
  if (job.resolved.given.picks) {
    return invalid("cli", "picks are given by --picks, found them in the spec");
  }
  return {};
}

Result<int64_t> index_of(const std::optional<std::string>& text,
                         std::string_view what, int64_t count) {
  if (!text) return int64_t{0};
  return parse_int(*text, what, 0, std::max<int64_t>(count, 1) - 1);
}

// What of the result the pictures show. `sizes` are those of drawn inputs.
Result<void> read_view(const RouteCommandFlags& o, const RunOptions& sizes,
                       RouteJob& job) {
  RouteShape shape;
  if (job.arrays) {
    shape = {job.q.view().heads, job.k.view().heads, job.q.view().dim};
  } else {
    const AttentionShape& s = sizes.data.shape;
    shape = {s.heads, s.kv_heads, s.head_dim};
  }
  int64_t heads = heads_of(job.settings.rule, shape);
  for (const auto* given : {&job.picks.picks, &job.picks.tile_picks}) {
    if (*given) heads = (*given)->view().heads;
  }
  auto batch_row =
      index_of(o.batch_row, "--batch-row", job.resolved.request.batch);
  if (!batch_row) return batch_row.error();
  job.batch_row = *batch_row;
  auto head = index_of(o.head, "--head", heads);
  if (!head) return head.error();
  job.head = *head;
  if (!o.width) return {};
  auto width = parse_int(*o.width, "--width", picture::kMinTextColumns, 1000);
  if (!width) return width.error();
  job.width = *width;
  return {};
}

Result<void> read_options(const RouteCommandFlags& o, RouteOptions& options) {
  if (o.run.threads) {
    auto threads = parse_int(*o.run.threads, "--threads", 1, kMaxThreads);
    if (!threads) return threads.error();
    options.threads = static_cast<int>(*threads);
  }
  if (o.run.isa) {
    auto isa = parse_isa(*o.run.isa);
    if (!isa) return isa.error();
    options.isa = *isa;
  }
  return {};
}

// Those of --picks, which is a file.
Result<void> read_given_picks(const RouteCommandFlags& o, RouteJob& job) {
  if (!o.run.request.picks) return {};
  const std::string& path = *o.run.request.picks;
  RouteReport& report = job.report;
  auto drawn = parse_drawn(path);
  if (!drawn) return drawn.error();
  if (*drawn) {
    return invalid("cli",
                   "route draws clustered inputs by itself, so --picks must "
                   "be a file, found {}",
                   in_quotes(path));
  }
  auto picks =
      read_picks_file(path, job.resolved.request, job.settings.query_tile);
  if (!picks) return picks.error();
  job.picks = std::move(*picks);
  report.given = job.picks.picks || job.picks.tile_picks;
  if (auto e = check_unread(o.route, job.picks); !e) return e;
  if (report.given && !job.arrays) {
    if (auto e = check_undrawn(o, "--picks"); !e) return e;
  }
  const std::string from = fmt::format("picks of {}", in_quotes(path));
  report.inputs = report.inputs.empty() ? from : report.inputs + "; " + from;
  return {};
}

Result<void> check_stage(const RouteCommandFlags& o, const RouteJob& job) {
  if (!job.report.given || !job.until || *job.until >= RouteStage::legality) {
    return {};
  }
  return invalid("cli",
                 "given picks enter at legality, found --stage {} before it",
                 *o.stage);
}

void tell_asked(RouteJob& job) {
  RouteReport& report = job.report;
  report.request = job.resolved.request;
  report.mask = fmt::format("{}", fmt::join(job.resolved.written, "; "));
  if (job.arrays) {
    report.arrays =
        arrays_text(std::as_const(job.q).view(), std::as_const(job.k).view());
  }
  report.threads =
      job.options.threads > 0 ? job.options.threads : machine_threads();
  report.until = job.until.value_or(RouteStage::expand);
}

}  // namespace

Result<RouteJob> make_route_job(const RouteCommandFlags& o) {
  RouteJob job;
  auto until = stage_of(o);
  if (!until) return until.error();
  job.until = *until;
  if (o.recall && job.until && *job.until < RouteStage::legality) {
    return invalid("cli", "--recall compares legal picks, found --stage {}",
                   *o.stage);
  }
  if (o.run.layout && *o.run.layout != "bhsd" && *o.run.layout != "bshd") {
    return invalid("cli", "--layout must be one of bhsd, bshd, found {}",
                   in_quotes(*o.run.layout));
  }
  const Layout layout = o.run.layout == "bshd" ? Layout::bshd : Layout::bhsd;
  if (o.run.inputs) {
    if (auto e = read_arrays(o, layout, job); !e) return e.error();
  }
  if (auto e = read_request(o, job); !e) return e.error();
  auto settings = read_route_settings(o.route, job.resolved.request);
  if (!settings) return settings.error();
  job.settings = *settings;
  if (auto e = read_options(o, job.options); !e) return e.error();
  if (auto e = read_given_picks(o, job); !e) return e.error();
  if (auto e = check_stage(o, job); !e) return e.error();
  const bool drawn = !job.arrays && !job.report.given;
  RunOptions sizes;
  if (drawn) {
    if (auto e = read_shape(o.run, sizes); !e) return e.error();
  }
  if (auto e = read_view(o, sizes, job); !e) return e.error();
  if (drawn) {
    const std::string picks = job.report.inputs;
    if (auto e = draw_inputs(o, sizes, layout, job); !e) return e.error();
    if (!picks.empty()) job.report.inputs += "; " + picks;
  }
  tell_asked(job);
  return job;
}

}  // namespace tessera::cli
