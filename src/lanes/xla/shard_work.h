// lanes/xla/shard_work.h: one batch on the devices of a mesh.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lanes/lane.h"
#include "lanes/xla/device_parts.h"
#include "lanes/xla/shard_arrays.h"
#include "lanes/xla/shard_program.h"
#include "lanes/xla/stage.h"
#include "pjrt/compile_cache.h"
#include "pjrt/place.h"

namespace tessera::xla {

// What a session opened.
struct OpenMesh {
  lanes::LaneOptions options;
  const pjrt::Client* client;
  pjrt::Devices devices;  // in the mesh's order
  PluginPlace place;
  mutable pjrt::CompileCache cache;

  OpenMesh(const lanes::LaneOptions& o, const pjrt::Client& c, pjrt::Devices d)
      : options(o),
        client(&c),
        devices(std::move(d)),
        place(pjrt::describe({client, &devices.front()})),
        cache({.folder = o.xla.cache_folder,
               .max_bytes = o.xla.max_cache_bytes,
               .max_compiles = o.xla.max_compiles}) {}
};

class ShardWork : public lanes::LaneWork, public lanes::ResidentWork {
 public:
  ShardWork(std::shared_ptr<const OpenMesh> open, Batch batch,
            AttentionShape shape, Shards shards);
  ~ShardWork() override;

  // What each device must know of the batch, which both directions read: once,
  // and first.
  Result<void> send_integers(const AttentionCall& call);
  // Compiles a direction.
  Result<void> add_pass(const AttentionCall& call, bool backward);

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
  // One direction of a batch.
  struct Pass {
    ShardShape shape;
    std::shared_ptr<const pjrt::Loaded> program;
  };
  // What a pass reads and writes, by the names of its program: on the host, or
  // with the devices. A result that nobody wants is in neither.
  struct Arrays {
    std::map<std::string, CallArray> from;
    std::map<std::string, const DeviceParts*> there;
    std::map<std::string, CallArray> to;
    std::map<std::string, DeviceParts*> stay;
    std::optional<std::span<const float>> sinks = {};
    std::span<float> dsinks = {};
  };

  Result<const Pass*> pass_of(bool backward) const;
  // [batch, heads, queries].
  TensorView numbers(std::span<const float> rows) const;
  CallArray to_rows(std::span<float> rows) const;
  void add_rows(std::span<const float> lse, std::span<const float> dlse,
                Arrays& arrays) const;
  Part stage_sinks(size_t shard, int64_t heads,
                   std::span<const float> sinks) const;
  Result<lanes::PassRun> run(const Pass& pass, const Arrays& arrays,
                             const StopFlag* stop) const;
  using Buffers = std::vector<std::vector<pjrt::Buffer>>;  // of each device
  Result<Buffers> execute(const Pass& pass, const Arrays& arrays,
                          lanes::PassRun& out) const;
  // All results that go to the host, before any of them is written: of each
  // shard, empty where a result stays.
  Result<std::vector<std::vector<Part>>> read(
      const Buffers& buffers, const std::vector<ShardArray>& results,
      const Arrays& arrays) const;

  std::shared_ptr<const OpenMesh> open_;
  Batch batch_;
  AttentionShape call_shape_;
  Shards shards_;
  std::vector<size_t> shard_of_;    // by device
  std::vector<Integers> integers_;  // of each shard; sent ones read them
  std::vector<std::map<std::string, pjrt::Buffer>> sent_;  // of each device
  std::unique_ptr<Pass> passes_[2];                        // forward, backward
  lanes::WorkFacts facts_;
};

}  // namespace tessera::xla
