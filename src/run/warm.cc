// run/warm.cc: compiles what a list of batches and requests needs, in parallel.
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/threads.h"
#include "base/timed.h"
#include "lanes/stop.h"
#include "plan/batch_state.h"
#include "run/check_arrays.h"
#include "run/session_state.h"

namespace tessera {
namespace {

// The plan's contract, or on a mesh that of its shards: batches of one plan
// contract may differ in what each device owns and what travels.
Result<PlanContract> contract_in(const SessionOptions& session,
                                 const Batch& batch,
                                 const AttentionCall& call) {
  auto contract = make_contract(batch);
  if (!contract || session.mesh.devices() <= 1) return contract;
  auto shards = make_shards(batch, session.mesh,
                            lanes::options_for(session.shards, call));
  if (!shards) {
    // The batch may still have shards for TPUs.
    if (session.shards.exchange == TileExchange::automatic) return contract;
    return shards.error();
  }
  contract->key = shards->contract_key;
  contract->text = shards->contract_text;
  return contract;
}

// The contract of the shards for TPUs if an automatic exchange makes others
// there: the devices are not known here. "" if there is none; a batch without
// shards fails when it is prepared.
std::string contract_on_tpus(const SessionOptions& session, const Batch& batch,
                             const AttentionCall& call) {
  const bool is_open = session.shards.exchange == TileExchange::automatic;
  if (!is_open || session.mesh.size("seq") <= 1) return "";  // no tile travels
  ShardOptions options = lanes::options_for(session.shards, call);
  options.for_tpu = true;
  auto shards = make_shards(batch, session.mesh, options);
  return shards ? shards->contract_key : "";
}

// The lane and method in words. If the rules choose, batches of one contract
// may differ in them, since density decides too.
std::string lane_of(const std::optional<Choice>& chosen) {
  if (!chosen) return "any";
  return fmt::format("{} {}", to_string(chosen->lane),
                     to_string(chosen->method));
}

// A key of all that kernel contracts of our lanes take from a call.
std::string key_of(const PlanContract& plan, std::string lane,
                   const Facts& facts, const AttentionCall& call) {
  KernelChoice choice;
  choice.lane = std::move(lane);
  choice.target = "any";
  choice.direction = call.backward ? "both" : "forward";
  choice.dtype = to_string(call.dtype);
  choice.shape = call.shape;
  choice.parameters = {{"sink_logits", call.sink_logits},
                       {"dlse", call.dlse},
                       {"sink_telemetry", call.sink_telemetry},
                       {"pick_heads", facts.picks ? facts.picks->heads : 0},
                       {"picks", facts.picks ? facts.picks->k : 0}};
  return make_kernel_contract(plan, choice).key;
}

// What one contract of a list took.
struct Warmed : CompileCounts {
  double compile_ms = 0;
  std::vector<std::string> warnings;
};

Result<Warmed> warm_one(const Session& session, const WarmList::Call& c) {
  auto ready = session.prepare(c.batch, c.call, c.chosen);
  if (!ready) return ready.error();
  const Counters counters = ready->counters();
  Warmed out{counters, counters.compile_ms, {}};
  out.warnings = ready->state().work->facts().warnings;
  return out;
}

Result<Warmed> warm_one(const Session& session, const WarmList::Ceilings& c) {
  auto open = run::open_named(session.state());
  if (!open) return open.error();
  auto did = (*open)->warm(c.request, c.present, c.call);
  if (!did) return did.error();
  return Warmed{*did, did->compile_ms, std::move(did->warnings)};
}

}  // namespace

Result<bool> add_call(WarmList& list, const Session& session,
                      const Batch& batch, const AttentionCall& call,
                      std::optional<Choice> chosen) {
  auto read = plan::read_batch(batch, "warm");
  if (!read) return read.error();
  if (auto e = run::check_dlse("warm", call); !e) return e.error();
  auto contract = contract_in(session.state().options, batch, call);
  if (!contract) return contract.error();
  if (session.state().options.lane) {
    chosen.reset();
  } else if (!chosen) {
    auto choice = session.choose(batch, call);
    if (!choice) return choice.error();
    chosen = std::move(*choice);
  }
  ++list.seen;
  const std::string key =
      key_of(*contract, lane_of(chosen), batch.facts(), call) +
      contract_on_tpus(session.state().options, batch, call);
  return list.calls.emplace(key, WarmList::Call{batch, call, std::move(chosen)})
      .second;
}

Result<bool> add_ceilings(WarmList& list, const Session& session,
                          const Request& request, const Facts& present,
                          const AttentionCall& call) {
  if (auto e = run::check_dlse("warm", call); !e) return e.error();
  auto open = run::open_named(session.state());
  if (!open) return open.error();
  if (auto e = run::check_reason(session.state().options, **open); !e) {
    return e.error();
  }
  auto contract = make_ceiling_contract(request, present);
  if (!contract) return contract.error();
  ++list.seen;
  return list.ceilings
      .emplace(key_of(*contract, lane_of({}), present, call),
               WarmList::Ceilings{request, present, call})
      .second;
}

Result<WarmReport> Session::warm(const WarmList& list,
                                 const WarmOptions& options) const {
  std::vector<std::function<Result<Warmed>()>> work;
  work.reserve(list.calls.size() + list.ceilings.size());
  const auto add = [&](const auto& listed) {
    for (const auto& [key, one] : listed) {
      work.emplace_back([this, &one = one] { return warm_one(*this, one); });
    }
  };
  add(list.calls);
  add(list.ceilings);
  WarmReport out;
  out.batches = list.seen;
  out.contracts = static_cast<int64_t>(work.size());
  std::mutex mutex;  // guards error, done and out
  std::optional<Error> error;
  int64_t done = 0;
  const auto one = [&](int64_t task, int) {
    {
      const std::lock_guard lock(mutex);
      if (error) return;
      if (auto e = lanes::check_stop(options.stop, "warm", "between contracts");
          !e) {
        error = e.error();
        return;
      }
    }
    const Result<Warmed> did = work[static_cast<size_t>(task)]();
    const std::lock_guard lock(mutex);
    if (!did) {
      if (!error) error = did.error();
      return;
    }
    out.add_compiles(*did);
    out.compile_ms += did->compile_ms;
    out.warnings.insert(out.warnings.end(), did->warnings.begin(),
                        did->warnings.end());
    if (options.progress) options.progress(++done, out.contracts);
  };
  timed(out.ms, [&] {
    parallel_for(out.contracts,
                 options.threads > 0 ? options.threads : machine_threads(), one,
                 "warm");
    return 0;
  });
  if (error) return *error;
  return out;
}

Result<WarmReport> Session::warm(const Request& request, const Facts& present,
                                 const AttentionCall& call) const {
  WarmList list;
  if (auto e = add_ceilings(list, *this, request, present, call); !e) {
    return e.error();
  }
  return warm(list);
}

}  // namespace tessera
