// cli/schedule/json.cc: a program's kernels as JSON.
#include <utility>

#include "cli/lowering.h"
#include "cli/schedule/report.h"

namespace tessera::cli {
namespace {

using nlohmann::json;

json slots_json(const schedule::SlotCounts& used,
                const schedule::SlotCounts& capacity, int64_t bundles) {
  json out = json::object();
  for (size_t s = 0; s < schedule::kSlots; ++s) {
    const auto most = static_cast<double>(capacity[s] * bundles);
    out[std::string(schedule::kSlotNames[s])] = {
        {"used", used[s]},
        {"capacity", capacity[s]},
        {"share", most > 0 ? static_cast<double>(used[s]) / most : 0}};
  }
  return out;
}

json cost_json(const schedule::RegionCost& c,
               const schedule::SlotCounts& capacity) {
  return {{"bundles", c.bundles},
          {"stalls", c.stalls},
          {"slots", slots_json(c.used, capacity, c.bundles)},
          {"bound", c.bound},
          {"bound_slot",
           c.bound > 0 ? json(schedule::kSlotNames[c.bound_slot]) : json()},
          {"distance", c.distance()},
          {"fills", c.used[schedule::kFill]},
          {"spills", c.used[schedule::kSpill]},
          {"dmas", c.transfers},
          {"hbm_bytes", c.bytes},
          {"dmas_of_unknown_size", c.unknown_sizes}};
}

constexpr const char* kKinds[] = {"kernel", "loop", "branch"};

json region_json(const schedule::KernelReport& k, size_t r) {
  const schedule::Region& region = k.profile.tree.regions[r];
  const schedule::RegionTime& t = k.prediction.regions[r];
  const bool known = t.source != schedule::TripSource::unknown;
  json out = {{"path", region.path},
              {"name", region.name},
              {"role", schedule::role_name(t.role)},
              {"kind", kKinds[static_cast<size_t>(region.kind)]},
              {"source", region.source},
              {"begin", region.begin},
              {"end", region.end},
              {"parent", region.parent},
              {"depth", region.depth},
              {"own", cost_json(k.profile.own[r], k.profile.text.capacity)},
              {"whole", cost_json(k.profile.whole[r], k.profile.text.capacity)},
              {"trips", known ? json(t.trips) : json()},
              {"trips_from", schedule::trip_source_name(t.source)},
              {"bundle_cycles", known ? json(t.bundle_cycles) : json()},
              {"memory_cycles", known ? json(t.memory_cycles) : json()}};
  return out;
}

json optional_json(const std::optional<double>& value) {
  return value ? json(*value) : json();
}

// An integer, unless the heads' tile counts differ: then a mean with a
// fraction.
json tiles_json(double tiles) {
  const auto whole = static_cast<int64_t>(tiles);
  return static_cast<double>(whole) == tiles ? json(whole) : json(tiles);
}

json kernel_json(const schedule::KernelReport& k) {
  json regions = json::array();
  for (size_t r = 0; r < k.profile.tree.regions.size(); ++r) {
    regions.push_back(region_json(k, r));
  }
  json paths = json::array();
  for (int64_t r : k.prediction.unknown) {
    paths.push_back(k.profile.tree.regions[static_cast<size_t>(r)].path);
  }
  json out = {{"name", k.profile.text.name},
              {"opcode", k.profile.text.opcode},
              {"bundles", k.profile.text.bundles.size()},
              {"grid", k.profile.text.grid},
              {"regions", std::move(regions)},
              {"irregular_jumps", k.profile.tree.irregular},
              {"unknown_trips", std::move(paths)},
              {"cycles", optional_json(k.prediction.cycles)},
              {"cycles_loops_once", k.prediction.cycles_loops_once},
              {"calls", k.calls}};
  if (k.prediction.attention) {
    out["attention"] = {{"block_q", k.block->q},
                        {"block_kv", k.block->kv},
                        {"heads", k.prediction.heads},
                        {"active_steps", k.counts->steps},
                        {"full_steps", k.counts->full},
                        {"partial_steps", k.counts->partial},
                        {"rows", k.counts->rows},
                        {"grid_steps", k.prediction.grid_steps},
                        {"dead_steps", k.prediction.dead_steps},
                        {"dead_cycles", k.prediction.dead_cycles}};
  }
  return out;
}

}  // namespace

json schedule_json(const schedule::ScheduleReport& report,
                   const AskedKernel* own) {
  json kernels = json::array();
  for (const schedule::KernelReport& k : report.kernels)
    kernels.push_back(kernel_json(k));
  const auto& held = report.chip.calibration;
  json out = {
      {"target", report.target},
      {"assumed",
       {{"gigahertz", report.chip.gigahertz},
        {"hbm_bytes_per_cycle", report.chip.hbm_bytes_per_cycle},
        {"calibrated", held.has_value()},
        {"calibrated_on", held ? json(schedule::kCalibratedOn) : json()},
        {"measured_over_predicted", held ? json{{"median", held->median},
                                                {"p5", held->p5},
                                                {"p95", held->p95}}
                                         : json()}}},
      {"kernels", std::move(kernels)},
      {"cycles", optional_json(report.cycles)},
      {"cycles_loops_once", report.cycles_loops_once},
      {"copy_cycles", report.copy_cycles},
      {"attention_cycles", optional_json(report.attention_cycles)},
      {"heads", report.heads > 0 ? json(report.heads) : json()},
      {"exact_tiles_per_head",
       report.exact_tiles ? tiles_json(*report.exact_tiles) : json()},
      {"cycles_per_tile", optional_json(report.cycles_per_tile())}};
  const auto& cycles =
      report.attention_cycles ? report.attention_cycles : report.cycles;
  out["cycles_per_head"] =
      cycles && report.heads > 0
          ? json(*cycles / static_cast<double>(report.heads))
          : json();
  if (own) {
    const Tile& tile = own->kernel.tile;
    out["own"] = {{"tile", {tile.q, tile.kv}},
                  {"tiles_per_pass", own->kernel.options.tiles_per_pass},
                  {"chosen_by", own->chosen_by()},
                  {"lowering", lowering_json(own->kernel.lowering)}};
    if (own->work) {
      out["own"]["pairs"] = {{"legal", own->legal_pairs},
                             {"tiles", own->work->pairs},
                             {"paid", own->work->paid}};
    }
  }
  return out;
}

std::span<const JsonField> schedule_json_fields() {
  static constexpr JsonField kFields[] = {
      {"target"},
      {"assumed.{gigahertz,hbm_bytes_per_cycle,calibrated,calibrated_on}"},
      {"assumed.measured_over_predicted.{median,p5,p95}",
       "programs whose times are known; null where none are"},
      {"cycles", "sum of all kernels; null where trips are unknown"},
      {"cycles_loops_once",
       "the same, a loop of unknown trips counted as one pass"},
      {"copy_cycles", "part of both: copies that no kernel hides"},
      {"attention_cycles, heads, cycles_per_head, exact_tiles_per_head",
       "heads of all batch rows; tiles in the mean"},
      {"cycles_per_tile", "a tile is 256 x 256"},
      {"own.{tile,tiles_per_pass,chosen_by}, "
       "own.lowering.{chip,granule,tile,reason,factor}, "
       "own.pairs.{legal,tiles,paid}",
       "for our own kernel"},
      {"kernels[].{name,opcode,bundles,grid,cycles,cycles_loops_once,calls,"
       "irregular_jumps,unknown_trips}",
       "grid: -1 where a run tells it; unknown_trips: paths of regions"},
      {"kernels[].attention.{block_q,block_kv,heads,active_steps,full_steps,"
       "partial_steps,rows,grid_steps,dead_steps,dead_cycles}"},
      {"kernels[].regions[].{path,name,role,kind,source,begin,end,parent,depth,"
       "trips,trips_from,bundle_cycles,memory_cycles}"},
      {"kernels[].regions[].{own,whole}.{bundles,stalls,bound,bound_slot,"
       "distance,fills,spills,dmas,hbm_bytes,dmas_of_unknown_size}",
       "own: of bundles in no region inside"},
      {"kernels[].regions[].{own,whole}.slots.NAME.{used,capacity,share}"},
  };
  return kFields;
}

}  // namespace tessera::cli
