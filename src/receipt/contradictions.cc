// receipt/contradictions.cc: checks the rules between fields of one receipt.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/json_read.h"
#include "receipt/fields.h"
#include "receipt/lowering.h"
#include "receipt/read.h"
#include "receipt/sink_contradictions.h"
#include "tessera/dispatch.h"

namespace tessera::receipt {
namespace {

// The family of the lane with this plugin; "" if the plugin does not fit.
std::string due_family(const std::string& name,
                       const std::optional<Receipt::Plugin>& plugin) {
  const auto lane = parse_lane(name);
  if (!lane) return "";
  const LaneFacts& facts = facts_of(*lane);
  // Lane mosaic's kernels are ours even without a plugin.
  if (!plugin && facts.needs_plugin && *lane != LaneId::mosaic) return "";
  if (plugin && !facts.needs_plugin) return "";
  if (plugin && *lane == LaneId::mosaic && plugin->platform != facts.platform) {
    return "";
  }
  return lane_family(*lane, plugin ? plugin->platform : "");
}

// Whether a and b are equal up to rounding. Both are computed from the same
// non-negative numbers with at most seven roundings: six additions, or for
// gflops the pairs as a double, two sums, two products and two quotients. An
// infinite value, where claims overflow, is near to none.
bool near(double a, double b) {
  constexpr double kRounding = std::numeric_limits<double>::epsilon() / 2;
  const double most = std::max(std::abs(a), std::abs(b));
  return std::isfinite(most) && std::abs(a - b) <= 2 * 7 * kRounding * most;
}

bool names_one_twice(const std::vector<std::string>& names) {
  return std::set(names.begin(), names.end()).size() != names.size();
}

bool is_in(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// Collects each rule that does not hold.
class Rules {
 public:
  void operator()(bool holds, std::string rule) {
    if (!holds) broken.push_back(std::move(rule));
  }
  std::vector<std::string> broken;
};

// In doubles: a sum of claimed counts may overflow an integer.
double programs_found(const Receipt& r) {
  return static_cast<double>(r.compiles) +
         static_cast<double>(r.cache_hits.memory) +
         static_cast<double>(r.cache_hits.disk);
}

bool names_artifact(const Receipt& r) {
  const auto parsed = parse_json(r.key.terms, "receipt");
  if (!r.artifact || !parsed) return false;
  const Json& terms = **parsed;
  const auto at = terms.find("artifact");
  return at != terms.end() && *at == r.artifact->digest;
}

void check_operation(const Receipt& r, Rules& must) {
  const Receipt::Lane& lane = r.lane;
  must(lane.requested == "jax_bridge" && lane.chosen == "jax_bridge" &&
           lane.executed == "jax_bridge" && lane.source == "command" &&
           lane.fallback_allowed.empty() && !r.fallback && r.ran(),
       "an operation must have run on the jax_bridge lane, asked for by the "
       "command");
  must(lane.family == "tpu/jax", "lane.family must be tpu/jax for a bridge");
  must(r.plugin.has_value(), "plugin must be there for a bridge");
  must(programs_found(r) == 1,
       fmt::format("compiles and cache hits must come to 1 for a bridge, "
                   "found {}",
                   programs_found(r)));
  must(names_artifact(r), "key.terms.artifact must be artifact.digest");
  must(r.inputs.digests.size() == r.inputs.arrays.size(),
       "inputs.digests must be of every input");
  must(!r.output_digest.empty(), "output.digest must be there for a bridge");
}

void check_training(const Receipt& r, Rules& must) {
  const Receipt::Training& t = r.training;
  must(r.operation == "train", "operation must be train for a training run");
  must(r.plugin.has_value(), "plugin must be there for a training run");
  must(programs_found(r) == 1,
       fmt::format("compiles and cache hits must come to 1 for a training run, "
                   "found {}",
                   programs_found(r)));
  must(t.first_step >= 1 && t.first_step <= t.steps,
       "first_step must be 1 to steps");
  // Subtracts, since a sum of claimed numbers may overflow.
  must(t.first_step >= 1 &&
           t.steps - t.first_step == static_cast<int64_t>(t.losses.size()) - 1,
       "losses must be of every step from first_step to steps");
  must(t.mesh.empty() == t.specs.empty(),
       "specs must be there for a mesh, and nowhere else");
  must(!t.exchange || !t.mesh.empty(),
       "exchange must be there for a mesh alone");
  must(!t.exchange || t.exchange->kind != "gather" ||
           t.exchange->sent == t.exchange->all_gather,
       "exchange.sent must be exchange.all_gather where all is gathered");
  std::set<std::string> files, due = {"rows"};
  if (!t.start.empty()) due.insert("start");
  for (const auto& [name, digest] : r.inputs.digests) files.insert(name);
  must(files == due, "inputs.digests must be of rows, and of start if any");
  must(t.first_step == 1 || !t.start.empty(),
       "first_step must be 1 for a run without start");
  must(t.slots.size() == std::size(allowed::kSlots),
       "slots must give every slot its factory");
  must(t.tiles_run <= t.tiles_planned,
       "tiles_run must be at most tiles_planned");
  must(!r.output_digest.empty(),
       "output.digest must be there for a training run");
}

void check_lane(const Receipt& r, const std::string& executed, Rules& must) {
  const Receipt::Lane& lane = r.lane;
  must(r.ran() != lane.executed.empty(),
       "lane.executed must name a lane where one ran, and none else");
  must(r.ran() != r.output_digest.empty(),
       "output.digest must be there where a lane ran, and nowhere else");
  must(lane.requested == "auto" || lane.requested == lane.chosen,
       "lane.chosen must be lane.requested, unless that is auto");
  must(lane.source != "default" || lane.requested == "auto",
       "lane.source must be who asked for lane.requested");
  must(lane.source != "caller" || lane.requested != "auto",
       "lane.source must be default where the caller named no lane");
  must(lane.source != "command",
       "lane.source must be command for an operation alone");
  must(executed == lane.chosen || is_in(lane.fallback_allowed, executed),
       "lane.executed must be lane.chosen or one of lane.fallback_allowed");
  must(!names_one_twice(lane.fallback_allowed),
       "lane.fallback_allowed must name a lane once");
  must((executed == lane.chosen) == !r.fallback,
       "fallback must say why lane.executed is not lane.chosen");
  must(lane.family == due_family(executed, r.plugin),
       fmt::format("lane.family must be that of {} and its plugin", executed));
  std::set<std::string> lanes = {lane.chosen};
  for (const auto& [name, reason] : r.choice.rejected) lanes.insert(name);
  constexpr size_t kLanes = std::size(allowed::kLanes);
  must(lanes.size() == kLanes && r.choice.rejected.size() == kLanes - 1,
       "choice.rejected must give every other lane its reason");
}

void check_what_ran(const Receipt& r, const std::string& executed,
                    Rules& must) {
  must((executed == "xla") == !r.method.empty(),
       "method must be there for the xla lane alone");
  must((executed == "mosaic") == !r.numbers.empty(),
       "numbers must be there for the mosaic lane alone");
  must((executed == "mosaic") == !r.row_sum.empty(),
       "row_sum must be there for the mosaic lane alone");
  const bool exported = executed == "jax_bridge" || executed == "splash";
  must(exported == r.artifact.has_value(),
       "artifact must be there for jax_bridge and splash alone");
  const bool native = executed == "cpu" || executed == "reference";
  must(native == r.isa.has_value(),
       "isa must be there for our own lanes alone");
  must(native == r.threads.has_value(),
       "threads must be there for our own lanes alone");
  must(!r.isa || is_in(r.machine.isas, *r.isa),
       "isa must be one of machine.isas");
  const int64_t due =
      native ? 0 : 1 + (r.backward ? 1 : 0) + (r.sink_telemetry ? 1 : 0);
  must(static_cast<int64_t>(r.kernels.size()) == due,
       fmt::format("kernels must be {} of the {} lane", due, executed));
  must(programs_found(r) == static_cast<double>(due),
       fmt::format("compiles and cache hits must come to {} for the {} lane, "
                   "found {}",
                   due, executed, programs_found(r)));
}

void check_shards(const Receipt& r, const std::string& executed, Rules& must) {
  if (!r.shards) return;
  must(r.shards->backward.has_value() == r.backward,
       "shards.backward must be there where gradients were computed");
  const auto in_order = [&](const Receipt::Moved& m, const char* way) {
    must(m.busiest <= m.needed && m.needed <= m.sent && m.sent <= m.capacity,
         fmt::format("shards.{0}.busiest must be at most shards.{0}.needed, "
                     "that at most shards.{0}.sent, and that at most "
                     "shards.{0}.capacity",
                     way));
    must(m.sent == m.capacity || r.shards->exchange == "ragged",
         fmt::format("shards.{0}.sent must be shards.{0}.capacity but of a "
                     "ragged exchange",
                     way));
  };
  in_order(r.shards->forward, "forward");
  if (r.shards->backward) in_order(*r.shards->backward, "backward");
  must(r.ran() && (executed == "xla" || executed == "mosaic"),
       "shards must be there for the lanes xla and mosaic alone");
}

void check_compiled_only(const Receipt& r, Rules& must) {
  must(r.tiles_run == 0 && r.tiles_skipped == 0 && r.pairs_run == 0,
       "tiles and pairs must be 0 where nothing ran");
  must(r.check.kind == "none", "check.kind must be none where nothing ran");
  must(r.total_ms == r.compile_ms,
       "ms must be of compiling alone where nothing ran");
  must(r.device == r.machine.cpu,
       "device must be machine.cpu where nothing ran");
  must(r.numbers.empty(), "numbers must be null where nothing ran");
  must(r.row_sum.empty(), "row_sum must be null where nothing ran");
}

void check_machine(const Receipt& r, Rules& must) {
  must(r.machine.loads_plugins || !r.plugin,
       "machine.loads_plugins must be true where a plugin was loaded");
  must(!names_one_twice(r.machine.isas), "machine.isas must name an ISA once");
}

void check_times(const Receipt& r, Rules& must) {
  must(near(r.total_ms_due(), r.total_ms),
       "ms.total must be the sum of the others");
  must(near(r.useful_gflops_due(), r.useful_gflops),
       "gflops.useful must be that of pairs.legal and ms");
  must(r.backward || r.backward_ms == 0,
       "ms.backward must be 0 for a forward run");
}

}  // namespace

std::vector<std::string> contradictions(const ReceiptClaim& r) {
  Rules must;
  if (r.of_plan()) {
    const std::string executed =
        r.ran() && !r.lane.executed.empty() ? r.lane.executed : r.lane.chosen;
    check_lane(r, executed, must);
    if (r.ran()) {
      check_what_ran(r, executed, must);
    } else {
      check_compiled_only(r, must);
    }
    check_shards(r, executed, must);
    if (auto broken = sink_contradiction(r, executed)) must(false, *broken);
    if (auto broken = lowering_contradiction(r, executed)) must(false, *broken);
    check_machine(r, must);
    check_times(r, must);
  } else if (r.kind == Kind::operation) {
    check_operation(r, must);
  } else {
    check_training(r, must);
    if (auto broken = lowering_contradiction(r, "")) must(false, *broken);
  }
  for (const std::string& field : r.misplaced) {
    must(false, fmt::format("{} must be there just where other fields call for "
                            "it",
                            field));
  }
  must(r.check.kind == "none" ||
           r.check.passed == (r.check.max_bound_ratio <= 1.0),
       "check.passed must follow from check.max_bound_ratio");
  return must.broken;
}

}  // namespace tessera::receipt
