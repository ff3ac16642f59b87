// run/receipt_parts.cc: converts between dispatch and receipts.
#include "run/receipt_parts.h"

#include <sys/utsname.h>

#include "base/dtype_word.h"
#include "base/fail.h"
#include "receipt/digests.h"
#include "receipt/lowering.h"
#include "receipt/machine.h"
#include "receipt/request_fields.h"
#include "run/session_state.h"
#include "tessera/batch.h"
#include "tessera/version.h"

namespace tessera::run {
namespace {

std::string system_name() {
  utsname u = {};
  if (uname(&u) != 0) return "unknown";
  return fmt::format("{} {} {}", u.sysname, u.release, u.machine);
}

receipt::Receipt::Moved receipt_moved(const Moved& m) {
  return {m.needed, m.sent, m.capacity, m.busiest, m.all_gather};
}

}  // namespace

receipt::Receipt::Choice receipt_choice(const Choice& c) {
  receipt::Receipt::Choice out;
  out.request_class = to_string(c.request_class);
  out.reason = c.reason;
  for (const Rejected& r : c.rejected) {
    out.rejected[std::string(to_string(r.lane))] = r.reason;
  }
  out.gate = c.gate;
  if (c.rule) out.rule = c.rule->name;
  return out;
}

receipt::Receipt::Machine receipt_machine(const Machine& m) {
  receipt::Receipt::Machine out;
  out.cpu = m.cpu;
  out.system = system_name();
  out.threads = m.threads;
  for (const Isa isa : m.isas) out.isas.emplace_back(to_string(isa));
  out.loads_plugins = m.loads_plugins;
  out.asked_plugins = m.asked_plugins;
  for (const MachinePlugin& p : m.plugins) {
    out.plugins.push_back({p.name, p.platform, p.devices, p.generation});
  }
  return out;
}

receipt::Receipt::Plugin receipt_plugin(const PluginPlace& place,
                                        int64_t number) {
  return {place.plugin,           place.api,    place.platform,
          place.platform_version, place.device, number};
}

Result<receipt::Receipt> start_receipt(const AskedRun& asked) {
  auto contract = make_contract(asked.batch);
  if (!contract) return contract.error();
  receipt::Receipt out;
  out.version = kVersion;
  out.lane.requested = asked.lane ? to_string(*asked.lane) : "auto";
  for (const LaneId lane : asked.fallback) {
    out.lane.fallback_allowed.emplace_back(to_string(lane));
  }
  out.backward = asked.backward;
  out.request = receipt::request_text(asked.batch.request());
  out.facts_digest = receipt::facts_digest(asked.batch.facts());
  out.shape.attention = asked.shape;
  out.shape.scale = asked.shape.scale_or_default();
  out.shape.dtype = dtype_word(asked.dtype);
  out.shape.sink_logits = asked.sink_logits;
  out.contract = contract->key;
  out.plan_digest = plan_digest(asked.batch.plan());
  out.pairs_legal = lanes::legal_pairs(asked.batch.plan(), asked.shape.heads);
  return out;
}

void add_what_ran(const Prepared& prepared, receipt::Receipt& r) {
  const Prepared::State& p = prepared.state();
  const lanes::WorkFacts& did = p.work->facts();
  const Counters counters = prepared.counters();
  const LaneId lane = prepared.lane();
  r.lane.executed = to_string(lane);
  r.fallback = p.fallback();
  r.isa = did.isa;
  r.threads = did.threads;
  r.kernels = did.kernels;
  r.settings = did.settings;
  if (!r.settings.empty()) r.settings.emplace("tile", "the request");
  r.tiles_run = counters.tiles_run;
  r.tiles_skipped = counters.tiles_skipped;
  r.pairs_run = counters.pairs_run;
  r.compiles = counters.compiles;
  r.cache_hits = {counters.memory_hits, counters.disk_hits};
  r.prepare_ms = counters.prepare_ms;
  r.compile_ms = counters.compile_ms;
  r.transfer_ms = counters.transfer_ms;
  r.forward_ms = counters.forward_ms;
  r.backward_ms = counters.backward_ms;
  r.warnings = did.warnings;
  r.device = receipt::cpu_model();
  std::string platform;
  if (const PluginPlace* place = p.lane->place()) {
    platform = place->platform;
    r.plugin = receipt_plugin(*place, p.options.xla.device);
    if (platform != "cpu") r.device = place->device;
  }
  if (did.shards) {
    const lanes::ShardFacts& s = *did.shards;
    r.shards = {to_string(s.mesh),
                std::string(to_string(s.balance)),
                std::string(to_string(s.exchange)),
                to_string(s.ceilings),
                s.work == TileWork() ? "" : to_string(s.work),
                s.evenness == Evenness() ? "" : to_string(s.evenness),
                s.uneven,
                s.specs,
                s.contract,
                s.report.work_max_over_mean,
                s.report.tokens_max_over_mean,
                receipt_moved(s.report.forward),
                {}};
    if (p.call.backward) r.shards->backward = receipt_moved(s.report.backward);
  }
  if (did.lowering) {
    r.lowering = receipt::lowering_of(*did.lowering, counters.pairs_run);
  }
  if (lane == LaneId::xla) r.method = to_string(p.options.xla.method);
  if (lane == LaneId::mosaic) {
    r.numbers = to_string(p.options.xla.numbers);
    r.row_sum = to_string(p.options.xla.row_sum);
  }
  if (!did.artifact_digest.empty()) {
    r.artifact = receipt::Receipt::Artifact();
    r.artifact->digest = did.artifact_digest;
  }
  r.lane.family = lane_family(lane, platform);
}

Machine machine_of(const receipt::Receipt& receipt) {
  const receipt::Receipt::Machine& m = receipt.machine;
  Machine out;
  out.cpu = m.cpu;
  out.threads = m.threads;
  for (const std::string& isa : m.isas) {
    if (auto known = parse_isa(isa)) out.isas.push_back(*known);
  }
  out.loads_plugins = m.loads_plugins;
  out.asked_plugins = m.asked_plugins;
  for (const receipt::Receipt::Machine::Plugin& p : m.plugins) {
    out.plugins.push_back({p.name, p.platform, p.devices, p.generation});
  }
  return out;
}

}  // namespace tessera::run
