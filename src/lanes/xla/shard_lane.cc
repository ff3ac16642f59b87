// lanes/xla/shard_lane.cc: a mesh lane whose program XLA compiles from ops.
#include "lanes/xla/shard_lane.h"

#include <utility>

#include "base/fail.h"
#include "lanes/xla/mesh_lane.h"
#include "lanes/xla/planned.h"
#include "lanes/xla/shard_arrays.h"
#include "lanes/xla/shard_shape.h"
#include "pjrt/locate.h"

namespace tessera::xla {
namespace {

MadeFor made_for(const OpenMesh& open) {
  const std::string& kind = open.devices.front().kind;
  return {fmt::format("{}:{}", open.client->platform(), kind), kind,
          open.options.xla.lowering_reason};
}

// Both directions read the same integers.
Result<std::shared_ptr<const SentIntegers>> send_integers(
    ShardWork& work, const ShardShape& shape) {
  auto made = make_shard_integers(shape, work.batch(), work.shards());
  if (!made) return made.error();
  const auto integers =
      std::make_shared<const std::vector<Integers>>(std::move(*made));
  return work.send(
      shard_arguments(shape),
      [&](size_t shard, const std::string& name) {
        return (*integers)[shard].at(name).data();
      },
      integers);
}

// The number of scores computed, over all devices and heads.
int64_t pairs_of(const Shards& shards) {
  int64_t out = 0;
  for (const Shard& shard : shards.shards) {
    out += shard.steps * (shard.heads / std::max<int64_t>(1, shard.lists)) *
           shards.tile.q * shards.tile.kv;
  }
  return out;
}

Result<void> add_pass(ShardWork& work, const AttentionCall& call,
                      ShardShape shape,
                      std::shared_ptr<const SentIntegers> integers) {
  const Shards& shards = work.shards();
  const MadeFor target = made_for(work.open());
  auto lowering = lower_on(shape.local, target);
  if (!lowering) return lowering.error();
  ShardPass pass = {lanes::one_direction(call, shape.local.backward),
                    shape,
                    {shard_arguments(shape), shard_results(shape)},
                    shard_fingerprint(shape)};
  const KernelContract contract =
      shard_contract(shape, pass.specs, shards, call, target.target, *lowering);
  pass.integers = std::move(integers);
  pass.pairs_run = pairs_of(shards);
  pass.heads_of_tile = shape.local.unit_heads();
  pass.lowering = std::move(*lowering);
  pass.text = [s = std::move(shape)] { return program_text(s); };
  return work.add(std::move(pass), contract);
}

Result<void> add_passes(ShardWork& work, const AttentionCall& call) {
  auto shape = shard_shape(work.batch(), work.shards(), call, false);
  if (!shape) return shape.error();
  auto integers = send_integers(work, *shape);
  if (!integers) return integers.error();
  auto e = add_pass(work, call, *shape, *integers);
  if (!e || !call.backward) return e;
  return add_pass(work, call, backward_shape(std::move(*shape), call),
                  std::move(*integers));
}

}  // namespace

Result<std::unique_ptr<lanes::OpenLane>> open_shard_lane(
    const lanes::LaneOptions& options) {
  const XlaOptions& o = options.xla;
  if (o.method != XlaMethod::worklist) {
    return invalid("xla", "a mesh must run the method worklist, found {}",
                   to_string(o.method));
  }
  auto open =
      open_mesh(options, pjrt::cpu_plugin(o.plugin, options.mesh.devices()));
  if (!open) return open.error();
  const std::string& platform = (*open)->client->platform();
  if (options.shards.exchange == TileExchange::ragged && platform != "tpu") {
    return unavailable("xla",
                       "a ragged exchange must be on a TPU, found platform {}",
                       platform);
  }
  return mesh_lane({LaneId::xla, "xla"}, std::move(*open), add_passes);
}

}  // namespace tessera::xla
