// cli/route/job_arrays.cc: reads or draws the arrays of a routing job. All
// checks are done before anything is drawn.
#include "cli/route/job_arrays.h"

#include <utility>

#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/given_flags.h"
#include "cli/numbers.h"
#include "cli/route/drawn_inputs.h"
#include "receipt/machine.h"
#include "request/numbers.h"
#include "request/pick_source.h"

namespace tessera::cli {
namespace {

// Refuses flags for drawn arrays if no arrays are drawn.
Result<void> check_undrawn(const RouteCommandFlags& o,
                           std::string_view source) {
  const auto found = first_given({{"--heads", o.run.heads.has_value()},
                                  {"--kv-heads", o.run.kv_heads.has_value()},
                                  {"--head-dim", o.run.head_dim.has_value()},
                                  {"--dtype", o.run.dtype.has_value()},
                                  {"--seed", o.run.seed.has_value()},
                                  {"--spread", o.spread.has_value()}});
  if (found.empty()) return {};
  return invalid("cli", "{} says what {} would, found both", source, found);
}

}  // namespace

Result<void> read_arrays(const RouteCommandFlags& o, request::Layout layout,
                         RouteJob& job) {
  if (auto e = check_undrawn(o, "--inputs"); !e) return e;
  auto bytes = read_file(*o.run.inputs, receipt::available_memory());
  if (!bytes) return bytes.error();
  auto file = parse_safetensors(*bytes);
  if (!file) return in_file(file.error(), *o.run.inputs);
  auto q = read_array(*file, "q", layout);
  if (!q) return in_file(q.error(), *o.run.inputs);
  auto k = read_array(*file, "k", layout);
  if (!k) return in_file(k.error(), *o.run.inputs);
  job.q = std::move(*q);
  job.k = std::move(*k);
  job.arrays = true;
  job.report.inputs = fmt::format("q and k of {}", in_quotes(*o.run.inputs));
  return {};
}

Result<void> draw_inputs(const RouteCommandFlags& o, const RunOptions& sizes,
                         request::Layout layout, RouteJob& job) {
  const AttentionShape& s = sizes.data.shape;
  DrawnInputs drawn;
  drawn.heads = s.heads;
  drawn.kv_heads = s.kv_heads;
  drawn.dim = s.head_dim;
  drawn.dtype = sizes.data.dtype;
  drawn.layout = layout;
  auto seed = parse_seed(o.run.seed.value_or("0"));
  if (!seed) return seed.error();
  drawn.seed = *seed;
  if (o.spread) {
    auto spread = request::parse_positive(*o.spread, "--spread");
    if (!spread) return spread.error();
    drawn.spread = *spread;
  }
  auto arrays = draw_arrays(drawn, job.settings, job.resolved.request,
                            job.resolved.facts.view(), job.options.threads);
  if (!arrays) return arrays.error();
  job.q = std::move(arrays->q);
  job.k = std::move(arrays->k);
  job.arrays = true;
  job.report.inputs = clusters_of(drawn, job.settings).describe();
  return {};
}

Result<void> read_given_picks(const RouteCommandFlags& o, RouteJob& job) {
  if (!o.run.request.picks) return {};
  const std::string& path = *o.run.request.picks;
  RouteReport& report = job.report;
  auto drawn = request::parse_drawn(path);
  if (!drawn) return drawn.error();
  if (*drawn) {
    return invalid("cli",
                   "route draws clustered inputs by itself, so --picks must "
                   "be a file, found {}",
                   in_quotes(path));
  }
  auto picks = request::read_picks_file(path, job.resolved.request,
                                        job.settings.query_tile);
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

}  // namespace tessera::cli
