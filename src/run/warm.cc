// run/warm.cc: prepares one batch of each contract, in parallel.
#include <mutex>
#include <optional>
#include <string>
#include <utility>

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

Result<WarmReport> warm_all(const Session& session, const WarmList& list,
                            const WarmOptions& options) {
  std::vector<const WarmList::Call*> calls;
  for (const auto& [key, call] : list.calls) calls.push_back(&call);
  WarmReport out;
  out.batches = list.seen;
  out.contracts = static_cast<int64_t>(calls.size());
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
    const WarmList::Call& c = *calls[static_cast<size_t>(task)];
    const auto ready = session.prepare(c.batch, c.call, c.chosen);
    const std::lock_guard lock(mutex);
    if (!ready) {
      if (!error) error = ready.error();
      return;
    }
    const Counters counters = ready->counters();
    out.add_compiles(counters);
    const auto& warnings = ready->state().work->facts().warnings;
    out.warnings.insert(out.warnings.end(), warnings.begin(), warnings.end());
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

}  // namespace tessera
