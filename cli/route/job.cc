// cli/route/job.cc: makes the job of `tessera route` from flags.
#include "cli/route/job.h"

#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "base/threads.h"
#include "cli/route/job_arrays.h"
#include "cli/route/view.h"
#include "cli/run/options.h"
#include "request/load.h"
#include "request/numbers.h"

namespace tessera::cli {
namespace {

constexpr const char* kDefaultMask = "causal & routed(top=8, block=256)";

// The last stage to run; absent: all stages, then the plan.
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

// Reads the request. If q and k are from a file, it has their lengths.
Result<void> read_request(const RouteCommandFlags& o, RouteJob& job) {
  request::RequestFlags flags = o.run.request;
  flags.picks.reset();
  if (flags.plan) {
    return invalid("cli", "--plan has its picks, found it for the router");
  }
  if (flags.masks.empty() && !flags.spec) flags.masks = {kDefaultMask};
  request::Lengths lengths;
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

Result<void> read_options(const RouteCommandFlags& o, RouteOptions& options) {
  if (o.run.threads) {
    auto threads =
        request::parse_int(*o.run.threads, "--threads", 1, kMaxThreads);
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
  const request::Layout layout =
      o.run.layout == "bshd" ? request::Layout::bshd : request::Layout::bhsd;
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
