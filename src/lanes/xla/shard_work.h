// lanes/xla/shard_work.h: one batch on the devices of a mesh, for any program
// that computes attention on each.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lanes/lane.h"
#include "lanes/xla/device_parts.h"
#include "lanes/xla/open_mesh.h"
#include "lanes/xla/shard_frame.h"
#include "lanes/xla/stage.h"

namespace tessera::xla {

struct LaneName {
  LaneId lane;
  const char* text;
};

// The integers of a batch, on the devices.
struct SentIntegers {
  std::shared_ptr<const void> host;  // the buffers may read it in place
  std::vector<std::map<std::string, pjrt::Buffer>> of_device;
};

// One direction of a batch.
struct ShardPass {
  AttentionCall call;  // of this direction alone
  ShardFrame frame;
  ShardArrays arrays;
  std::string specs;                       // fingerprint of the array specs
  std::function<std::string()> text = {};  // of the program
  std::shared_ptr<const SentIntegers> integers = {};
  int64_t pairs_run = 0;  // scores computed, of all devices and heads
  // Active tiles of all heads; 0 if the program counts them in its result
  // "tiles", where each tile counts for `heads_of_tile` heads.
  int64_t tiles_run = 0, heads_of_tile = 1;
  // The log-sum-exp of a padding query: +inf gives every score probability 0.
  float lse_of_none = std::numeric_limits<float>::infinity();
  // For receipts.
  std::optional<Lowering> lowering = {};
  std::string setting = {};  // with what chose it; "": none
  std::shared_ptr<const pjrt::Loaded> program = {};  // set by add()
};

class ShardWork : public lanes::LaneWork, public lanes::ResidentWork {
 public:
  ShardWork(LaneName name, std::shared_ptr<const OpenMesh> open, Batch batch,
            AttentionShape shape, Shards shards);
  ~ShardWork() override;

  const OpenMesh& open() const { return *open_; }
  const Batch& batch() const { return batch_; }
  const Shards& shards() const { return shards_; }

  // Sends each device its own integers of `arguments`; `host` owns the memory.
  using IntegersOf =
      std::function<const int32_t*(size_t shard, const std::string& name)>;
  Result<std::shared_ptr<const SentIntegers>> send(
      const std::vector<ShardArray>& arguments, const IntegersOf& integers_of,
      std::shared_ptr<const void> host);
  // Compiles the program of a direction.
  Result<void> add(ShardPass pass, const KernelContract& contract);

  const lanes::WorkFacts& facts() const override { return facts_; }
  Result<lanes::PassRun> forward(const ForwardTensors& tensors,
                                 const StopFlag* stop) override;
  Result<lanes::PassRun> backward(const ForwardTensors& tensors,
                                  const Gradients& gradients,
                                  const StopFlag* stop) override;
  Result<std::string> program_text(bool backward) const override;

  lanes::ResidentWork* residents() override { return this; }
  Result<lanes::ResidentPtr> put(const TensorView& t, bool queries) override;
  Result<void> fetch(const lanes::Resident& array, bool queries,
                     const MutableTensorView& to) const override;
  Result<lanes::PassRun> forward(lanes::ResidentForward& pass,
                                 const StopFlag* stop) override;
  Result<lanes::PassRun> backward(lanes::ResidentBackward& pass,
                                  const StopFlag* stop) override;

 private:
  // The arrays that a pass reads and writes, by name: on the host (from, to) or
  // on the devices (there, stay). Results that are not wanted are left out.
  struct Arrays {
    std::map<std::string, CallArray> from;
    std::map<std::string, const DeviceParts*> there;
    std::map<std::string, CallArray> to;
    std::map<std::string, DeviceParts*> stay;
    std::optional<std::span<const float>> sinks = {};
    std::span<float> dsinks = {};
  };

  Result<const ShardPass*> pass_of(bool backward) const;
  // [batch, heads, queries].
  TensorView numbers(std::span<const float> rows) const;
  CallArray to_rows(std::span<float> rows) const;
  void add_rows(const ShardPass& pass, std::span<const float> lse,
                std::span<const float> dlse, Arrays& arrays) const;
  Part stage_sinks(size_t shard, int64_t heads,
                   std::span<const float> sinks) const;
  Result<lanes::PassRun> run(const ShardPass& pass, const Arrays& arrays,
                             const StopFlag* stop) const;
  using Buffers = std::vector<std::vector<pjrt::Buffer>>;  // of each device
  Result<Buffers> execute(const ShardPass& pass, const Arrays& arrays,
                          lanes::PassRun& out) const;
  // Reads all results that go to the host before any of them is written. By
  // shard and result; empty where a result stays on the device.
  Result<std::vector<std::vector<Part>>> read(
      const Buffers& buffers, const std::vector<ShardArray>& results,
      const Arrays& arrays) const;
  void write(const ShardPass& pass, const Arrays& arrays,
             const std::vector<std::vector<Part>>& parts,
             lanes::PassRun& out) const;

  LaneName name_;
  std::shared_ptr<const OpenMesh> open_;
  Batch batch_;
  AttentionShape call_shape_;
  Shards shards_;
  std::vector<size_t> shard_of_;        // by device
  std::optional<ShardPass> passes_[2];  // forward, backward
  lanes::WorkFacts facts_;
};

}  // namespace tessera::xla
