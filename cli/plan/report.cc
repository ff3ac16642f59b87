// cli/plan/report.cc: everything `tessera plan` says about a plan.
#include "cli/plan/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/route/report.h"
#include "receipt/parts.h"
#include "receipt/routing.h"
#include "tessera/layouts.h"

namespace tessera::cli {
namespace {

using nlohmann::json;

json lists_json(const Worklist& w, int64_t heads) {
  json out = json::array();
  for (int64_t l = 0; l < w.lists; ++l) {
    std::vector<uint32_t> row_start;
    std::vector<uint32_t> column;
    std::vector<int> tile_class;
    const size_t first = static_cast<size_t>(l * w.rows);
    for (int64_t r = 0; r <= w.rows; ++r) {
      row_start.push_back(w.row_start[first + static_cast<size_t>(r)] -
                          w.row_start[first]);
    }
    for (int64_t r = 0; r < w.rows; ++r) {
      for (const Entry& e : w.row(l, r)) {
        column.push_back(static_cast<uint32_t>(e.column()));
        tile_class.push_back(static_cast<int>(e.tile_class()));
      }
    }
    out.push_back({{"batch", l / heads},
                   {"head", l % heads},
                   {"row_start", std::move(row_start)},
                   {"column", std::move(column)},
                   {"class", std::move(tile_class)}});
  }
  return out;
}

std::string percent(int64_t part, int64_t whole) {
  if (whole == 0) return "0 %";
  return fmt::format("{:.1f} %", 100.0 * static_cast<double>(part) /
                                     static_cast<double>(whole));
}

}  // namespace

std::string with_unit(double value) {
  constexpr const char* kUnits[] = {"", " k", " M", " G", " T", " P", " E"};
  size_t unit = 0;
  while (value >= 1000 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f}", value)
                   : fmt::format("{:.3g}{}", value, kUnits[unit]);
}

Result<PlanReport> make_report(Planned planned, int64_t plan_ns) {
  PlanReport r(std::move(planned));
  r.plan_ns = plan_ns;
  const Batch& batch = r.planned.batch;
  const Request& request = batch.request();
  auto statistics = make_statistics(batch);
  if (!statistics) return statistics.error();
  r.statistics = std::move(*statistics);
  auto contract = make_contract(batch);
  if (!contract) return contract.error();
  r.contract = std::move(*contract);
  for (size_t i = 0; i < request.masks.size(); ++i) {
    const std::string canonical = to_string(request.masks[i]);
    if (canonical != r.planned.written[i]) {
      r.contract.folded.insert(r.contract.folded.begin(),
                               fmt::format("mask {} is written {}",
                                           r.planned.written[i], canonical));
    }
  }
  r.warnings = r.plan().warnings;
  for (const std::string& fact : r.contract.unused_facts) {
    r.warnings.push_back(fmt::format(
        "[plan] a fact should be named by a mask, found {} unused", fact));
  }
  r.digest = plan_digest(r.plan());
  r.picks = receipt::routing_of(batch);
  r.steps = step_count(r.plan().forward);
  r.steps_transposed = step_count(r.plan().transposed);
  // One word a step, one a range bound.
  r.metadata_bytes = 4 * (r.steps + r.plan().forward.lists + 1);
  if (r.planned.target) {
    for (const bool transposed : {false, true}) {
      auto steps = pack_steps(r.plan(), transposed);
      if (!steps) return steps.error();
      auto launches = split_launches(*steps, *r.planned.target);
      if (!launches) return launches.error();
      (transposed ? r.launches_transposed : r.launches) =
          static_cast<int64_t>(launches->size());
    }
  }
  return r;
}

json report_json(const PlanReport& r, bool lists) {
  const Statistics& s = r.statistics;
  const Plan& p = r.plan();
  const json contract = json::parse(r.contract.text);
  json masks = json::array();
  for (const Mask& mask : r.request().masks) {
    masks.push_back(to_string(mask));
  }
  json histogram = json::object();
  for (const auto& [tiles, rows] : s.row_histogram) {
    histogram[std::to_string(tiles)] = rows;
  }
  json out = {
      {"masks", masks},
      {"batch", p.batch},
      {"heads", p.heads},
      {"q_len", p.q_len},
      {"kv_len", p.kv_len},
      {"tile", {p.tile.q, p.tile.kv}},
      {"tiles",
       {{"active", s.tiles_active},
        {"partial", s.tiles_partial},
        {"full", s.tiles_full},
        {"total", s.tiles_total}}},
      {"pairs",
       {{"needed", s.pairs_needed},
        {"paid", s.pairs_paid},
        {"total", s.pairs_total}}},
      {"logical", {{"active", s.logical_active}, {"paid", s.logical_paid}}},
      {"density", s.density},
      {"grid_width", s.grid_width},
      {"grid_width_bucket", contract["width"]},
      {"grid_width_transposed", s.grid_width_transposed},
      {"grid_width_transposed_bucket", contract["width_transposed"]},
      {"steps", r.steps},
      {"steps_transposed", r.steps_transposed},
      {"steps_bucket", contract["steps"]},
      {"empty_rows", s.empty_rows},
      {"empty_columns", s.empty_columns},
      {"row_histogram", histogram},
      {"contract", r.contract.key},
      {"contract_terms", contract},
      {"window_bounds", r.contract.window_bounds},
      {"folded", r.contract.folded},
      {"metadata_bytes", r.metadata_bytes},
      {"plan_ns", r.plan_ns},
      {"digest", r.digest},
      {"warnings", r.warnings},
  };
  if (r.launches) {
    out["target"] = {{"name", r.planned.target->name},
                     {"scalar_words", r.planned.target->scalar_words},
                     {"launches", *r.launches},
                     {"launches_transposed", *r.launches_transposed}};
  }
  if (r.picks) {
    out["picks"] = picks_json(*r.picks);
    out["phases"] = receipt::route_phases_json();
  }
  if (lists) {
    out["forward"] = lists_json(p.forward, p.heads);
    out["transposed"] = lists_json(p.transposed, p.heads);
  }
  return out;
}

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
    line("picks", picks_text(*r.picks));
    line("phases", phases_text());
  }
  line("contract", r.contract.key);
  for (const std::string& folded : r.contract.folded) line("", folded);
  line("digest", r.digest);
  line("planned in",
       fmt::format("{:.1f} us", static_cast<double>(r.plan_ns) / 1e3));
  return out;
}

std::string json_line(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace tessera::cli
