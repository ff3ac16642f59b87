// cli/plan/json.cc: a plan as JSON.
#include <cstdint>
#include <utility>
#include <vector>

#include "cli/plan/report.h"
#include "cli/route/report.h"
#include "receipt/parts.h"

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

}  // namespace

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

std::span<const JsonField> report_json_fields() {
  static constexpr JsonField kFields[] = {
      {"masks", "one for all heads, or one per group of them"},
      {"batch, heads, q_len, kv_len, tile"},
      {"tiles.{active,partial,full,total}"},
      {"pairs.{needed,paid,total}", "legal; real pairs of active tiles; all"},
      {"logical.{active,paid}", "counted in logical blocks in place of tiles"},
      {"density", "share of tiles that are active"},
      {"grid_width, grid_width_transposed", "tiles of the widest row"},
      {"grid_width_bucket, grid_width_transposed_bucket",
       "size that the contract has for them"},
      {"steps, steps_transposed", "packed steps"},
      {"steps_bucket", "size that the contract has for them"},
      {"empty_rows, empty_columns", "without a tile, over all lists"},
      {"row_histogram.N", "tile rows with N tiles"},
      {"contract", "the key"},
      {"contract_terms.NAME", "terms that the key digests"},
      {"window_bounds, folded", "details that the key leaves out"},
      {"metadata_bytes", "size of packed forward steps and their ranges"},
      {"plan_ns",
       "from ids in memory to both lists, of this one run: `tessera-bench "
       "plan` measures the least of many"},
      {"digest, warnings"},
      {"target.{name,scalar_words,launches,launches_transposed}",
       "with --target"},
      {kPicksFields, "masks with picks"},
      {kPhasesFields, "masks with picks: where a gradient flows"},
      {"{forward,transposed}[].{batch,head,row_start,column,class}",
       "with --lists: class 1 is partial, 2 is full"},
  };
  return kFields;
}

}  // namespace tessera::cli
