// lanes/lane.h: what a lane is to a session: it is opened once, prepares a
// batch once, and then runs layers. Every lane implements this and no more.
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
  XlaOptions xla;  // plugin, device and cache are all plugins' lanes'
  std::optional<BridgeArtifact> artifact;
  Mesh mesh;  // of several devices, for a lane that spreads a call; else empty
  ShardOptions shards;
};

// The options with the sizes and dtype of a call.
ShardOptions options_for(ShardOptions options, const AttentionCall& call);

// The call of one pass alone: forward nothing goes back, and neither tells of
// sinks.
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
  // By direction: how every argument and result of its program lies, digested.
  std::map<std::string, std::string> specs;
  std::string contract;  // a digest
  ShardReport report;
};

// What a lane did to make a batch ready, and what it will run it with.
struct WorkFacts : CompileCounts {
  std::optional<std::string> isa;  // nothing: not for us to say
  std::optional<int> threads;
  // Of lanes that compile: their contracts by direction.
  std::map<std::string, std::string> kernels;
  // Of those whose kernels have settings: by direction what it is, and who
  // chose it.
  std::map<std::string, std::string> settings;
  // Where a TPU's matrix unit takes the request's tiles.
  std::optional<Lowering> lowering;
  double compile_ms = 0, transfer_ms = 0;
  std::string artifact_digest;  // of a bridge's
  std::optional<ShardFacts> shards;
  std::vector<std::string> warnings;
};

// One batch on one lane. It belongs to one caller.
class LaneWork {
 public:
  virtual ~LaneWork() = default;
  virtual const WorkFacts& facts() const = 0;
  virtual Result<PassRun> forward(const ForwardTensors& tensors,
                                  const StopFlag* stop) = 0;
  virtual Result<PassRun> backward(const ForwardTensors& tensors,
                                   const Gradients& gradients,
                                   const StopFlag* stop) = 0;
  // Of lanes whose LaneFacts say sink_telemetry. Reads q, k and sink logits.
  virtual Result<SinkRows> sink_rows(const ForwardTensors& tensors,
                                     int64_t first_keys, const StopFlag* stop);
  // Null where arrays are in the host's memory anyway.
  virtual ResidentWork* residents() { return nullptr; }
  // The text of the program that `forward` or `backward` runs.
  virtual Result<std::string> program_text(bool backward) const;
};

// Of a pass that the call was not prepared for.
Error no_backward(std::string_view where);
Error no_sink_telemetry(std::string_view where);
// An artifact of JAX's is one forward program, as MLIR bytecode.
Error artifact_has_no_backward(std::string_view where);
Error artifact_has_no_text(std::string_view where);

class OpenLane {
 public:
  virtual ~OpenLane() = default;
  // `before` may be handed back work of an earlier batch, whose memory serves
  // again.
  virtual Result<std::unique_ptr<LaneWork>> prepare(
      const Batch& batch, const AttentionCall& call,
      std::unique_ptr<LaneWork> before) = 0;
  // Compiles what every batch under the request's ceilings will need; of
  // `present` only which facts there are is read.
  virtual Result<WorkFacts> warm(const Request& request, const Facts& present,
                                 const AttentionCall& call);
  // Bytes that a call takes beside its arrays, about.
  virtual double bytes(const Request& request,
                       const AttentionCall& call) const = 0;
  virtual const PluginPlace* place() const { return nullptr; }
};

struct Lane {
  LaneId lane;
  // An error says why it cannot start here.
  Result<std::unique_ptr<OpenLane>> (*open)(const LaneOptions& options);
  // Takes and gives 0 for subnormal numbers, as a check must know.
  bool flushes = false;
};

std::span<const Lane> lanes();  // those that a session can open

int64_t legal_pairs(const Plan& plan, int64_t heads);  // every query head

}  // namespace tessera::lanes
