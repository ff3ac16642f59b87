// cli/plan/text.cc: a plan as text.
#include <fmt/format.h>

#include <string_view>

#include "base/units.h"
#include "cli/plan/report.h"
#include "cli/route/report.h"
#include "receipt/lines.h"

namespace tessera::cli {
namespace {

std::string percent(int64_t part, int64_t whole) {
  if (whole == 0) return "0 %";
  return fmt::format("{:.1f} %", 100.0 * static_cast<double>(part) /
                                     static_cast<double>(whole));
}

}  // namespace

std::string report_text(const PlanReport& r) {
  const Statistics& s = r.statistics;
  const Plan& p = r.plan();
  std::string out;
  auto line = [&](std::string_view name, const std::string& text) {
    out += fmt::format("{:<11} {}\n", name, text);
  };
  for (const Mask& mask : r.request().masks) {
    line("mask", to_string(mask));
  }
  line("tokens",
       fmt::format("{} queries x {} keys, {} batch row{}, {} plan head{}",
                   p.q_len, p.kv_len, p.batch, p.batch == 1 ? "" : "s", p.heads,
                   p.heads == 1 ? "" : "s"));
  line("tiles",
       fmt::format("{} of {} active ({}), {} full, {} partial, each "
                   "{} x {}",
                   s.tiles_active, s.tiles_total,
                   percent(s.tiles_active, s.tiles_total), s.tiles_full,
                   s.tiles_partial, p.tile.q, p.tile.kv));
  line("work", fmt::format("{} pairs needed, {} paid ({} useful), {} if dense",
                           with_unit(static_cast<double>(s.pairs_needed)),
                           with_unit(static_cast<double>(s.pairs_paid)),
                           percent(s.pairs_needed, s.pairs_paid),
                           with_unit(static_cast<double>(s.pairs_total))));
  const Tile& block = r.request().logical_block;
  if (block.q > 0) {
    line("logical",
         fmt::format("{} blocks of {} x {} active, {} pairs ({} of what the "
                     "tiles pay)",
                     s.logical_active, block.q, block.kv,
                     with_unit(static_cast<double>(s.logical_paid)),
                     percent(s.logical_paid, s.pairs_paid)));
  }
  line("grid width",
       fmt::format("{}, transposed {}", s.grid_width, s.grid_width_transposed));
  line("metadata",
       fmt::format("{} packed steps ({} bytes), transposed {}{}", r.steps,
                   r.metadata_bytes, r.steps_transposed,
                   r.launches ? fmt::format("; launches on {}: {}, transposed "
                                            "{}",
                                            r.planned.target->name, *r.launches,
                                            *r.launches_transposed)
                              : ""));
  if (r.picks) {
    line("picks", receipt::picks_text(*r.picks));
    line("phases", phases_text());
  }
  line("contract", r.contract.key);
  for (const std::string& folded : r.contract.folded) line("", folded);
  line("digest", r.digest);
  line("planned in", took_once(r.plan_ns));
  return out;
}

}  // namespace tessera::cli
