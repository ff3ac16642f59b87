// lanes/lane.h: the interface of a lane, as sessions use it. A session opens
// the lane once, prepares each batch once and then runs layers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lanes/bytes.h"
#include "lanes/pass_run.h"
#include "lanes/resident.h"
#include "lanes/sink_rows.h"
#include "tessera/attention.h"
#include "tessera/batch.h"
#include "tessera/bridge.h"
#include "tessera/dispatch.h"
#include "tessera/machine.h"
#include "tessera/result.h"
#include "tessera/shard.h"

namespace tessera::lanes {

struct LaneOptions {
  CpuOptions cpu;
  XlaOptions xla;  // every plugin lane reads plugin, device and cache
  std::optional<BridgeArtifact> artifact;
  Mesh mesh;  // the devices that a call is spread over; empty: one device
  ShardOptions shards;
};

// The options with shape, dtype and dlse of the call filled in.
ShardOptions options_for(ShardOptions options, const AttentionCall& call);

// The call of one pass alone: without backward and dlse for the forward pass,
// and without sink telemetry for either.
AttentionCall one_direction(AttentionCall call, bool backward);

// How a lane spread a batch over devices.
struct ShardFacts {
  Mesh mesh;
  Balance balance = Balance::rows;
  TileExchange exchange = TileExchange::rounds;
  ShardCeilings ceilings;
  TileWork work;
  Evenness evenness;
  bool uneven = false;
  // By direction: a digest of the sharding of all arguments and results.
  std::map<std::string, std::string> specs;
  std::string contract;  // a digest
  ShardReport report;
};

// What a lane did to prepare a batch, and what the batch will run with.
struct WorkFacts : CompileCounts {
  std::optional<std::string> isa;  // nullopt: the plugin chooses it
  std::optional<int> threads;
  // By direction: the kernel contract. Only lanes that compile set it.
  std::map<std::string, std::string> kernels;
  // By direction: the kernel setting and what chose it. Empty for lanes whose
  // kernels have no settings.
  std::map<std::string, std::string> settings;
  // The request's tiles as lowered to a TPU's matrix unit.
  std::optional<Lowering> lowering;
  double compile_ms = 0, transfer_ms = 0;
  std::string artifact_digest;  // of the bridge's artifact
  std::optional<ShardFacts> shards;
  std::vector<std::string> warnings;
};

// One batch prepared on one lane, owned by one caller.
class LaneWork {
 public:
  virtual ~LaneWork() = default;
  virtual const WorkFacts& facts() const = 0;
  virtual Result<PassRun> forward(const ForwardTensors& tensors,
                                  const StopFlag* stop) = 0;
  virtual Result<PassRun> backward(const ForwardTensors& tensors,
                                   const Gradients& gradients,
                                   const StopFlag* stop) = 0;
  // For lanes whose LaneFacts have sink_telemetry. Reads q, k and sink logits.
  virtual Result<SinkRows> sink_rows(const ForwardTensors& tensors,
                                     int64_t first_keys, const StopFlag* stop);
  // Null: the lane keeps no arrays, so the session uses HostResidents.
  virtual ResidentWork* residents() { return nullptr; }
  // The text of the program that `forward` or `backward` runs.
  virtual Result<std::string> program_text(bool backward) const;
};

// Errors for a pass that the call was not prepared for.
Error no_backward(std::string_view where);
Error no_sink_telemetry(std::string_view where);
// Errors of JAX artifacts: each is one forward program, as MLIR bytecode.
Error artifact_has_no_backward(std::string_view where);
Error artifact_has_no_text(std::string_view where);

class OpenLane {
 public:
  virtual ~OpenLane() = default;
  // `before`: null, or the work of an earlier batch, whose memory is reused.
  virtual Result<std::unique_ptr<LaneWork>> prepare(
      const Batch& batch, const AttentionCall& call,
      std::unique_ptr<LaneWork> before) = 0;
  // Compiles what every batch under the request's ceilings will need. Only
  // which facts `present` has is read, not their values.
  virtual Result<WorkFacts> warm(const Request& request, const Facts& present,
                                 const AttentionCall& call);
  // About how many bytes a call takes beside its arrays.
  virtual double bytes(const Request& request,
                       const AttentionCall& call) const = 0;
  virtual const PluginPlace* place() const { return nullptr; }
};

struct Lane {
  LaneId lane;
  // Fails with the reason if the lane cannot run on this machine.
  Result<std::unique_ptr<OpenLane>> (*open)(const LaneOptions& options);
  // Reads and writes subnormal numbers as 0; checks of results allow for it.
  bool flushes = false;
};

std::span<const Lane> lanes();  // the lanes that a session can open

int64_t legal_pairs(const Plan& plan, int64_t heads);  // of all query heads

}  // namespace tessera::lanes
