// lanes/mosaic/shard_lane.cc: plans the kernel's program for all shards and
// sends its integers once a batch; the lane that all programs over a mesh share
// (mesh_lane.h) runs it.
#include "lanes/mosaic/shard_lane.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "lanes/mosaic/settings.h"
#include "lanes/mosaic/shards.h"
#include "lanes/mosaic/tpu.h"
#include "lanes/xla/mesh_lane.h"
#include "tessera/mosaic.h"

namespace tessera::mosaic {
namespace {

using xla::SentIntegers;
using xla::ShardWork;

// Sends each device its own part of the arrays.
Result<std::shared_ptr<const SentIntegers>> send_integers(
    ShardWork& work, const std::vector<xla::ShardArray>& arguments,
    std::vector<MosaicArray> arrays) {
  const auto whole =
      std::make_shared<const std::vector<MosaicArray>>(std::move(arrays));
  const size_t shards = work.shards().shards.size();
  return work.send(
      arguments,
      [&](size_t shard, const std::string& name) {
        const std::vector<int32_t>& all =
            std::ranges::find(*whole, name, &MosaicArray::name)->values;
        return all.data() + shard * (all.size() / shards);
      },
      whole);
}

Result<void> add_pass(ShardWork& work, const AttentionCall& call,
                      const std::string& target) {
  const Batch& batch = work.batch();
  auto fitted = fit_shards(batch, work.shards(), call, target,
                           terms_of(work.open().options.xla));
  if (!fitted) return fitted.error();
  ShardKernel& kernel = fitted->kernel;
  const MosaicKernel& k = kernel.planned.kernel;
  auto integers = make_mosaic_shard_arrays(batch, work.shards(), k);
  if (!integers) return integers.error();
  xla::ShardPass pass = {call, kernel.frame, arrays_of(kernel), kernel.specs};
  const int64_t heads = kernel.planned.shape.heads_of_list();
  pass.pairs_run =
      shard_steps_in(kernel, *integers) * k.tile.q * k.tile.kv * heads;
  // The kernel counts no tiles; these are the counts of its lists.
  const Plan& plan = batch.plan();
  const Worklist& w = call.backward ? plan.transposed : plan.forward;
  pass.tiles_run =
      static_cast<int64_t>(w.entries.size()) * (call.shape.heads / plan.heads);
  // The log-sum-exp of a query without a key.
  pass.lse_of_none = -std::numeric_limits<float>::infinity();
  pass.lowering = k.lowering;
  pass.setting = setting_words(k, fitted->chosen_by);
  auto sent = send_integers(work, pass.arrays.arguments, std::move(*integers));
  if (!sent) return sent.error();
  pass.integers = std::move(*sent);
  const KernelContract contract = k.contract;
  pass.text = [made = std::move(kernel)] { return program_text(made); };
  return work.add(std::move(pass), contract);
}

// The target of all devices, which must be of one chip.
Result<std::string> target_of_all(const xla::OpenMesh& open) {
  auto first = target_of({open.client, &open.devices.front()});
  if (!first) return first;
  for (size_t d = 1; d < open.devices.size(); ++d) {
    auto target = target_of({open.client, &open.devices[d]});
    if (!target) return target;
    if (*target == *first) continue;
    return unavailable("mosaic",
                       "devices of a mesh must be of one chip, found {} and {}",
                       *first, *target);
  }
  return first;
}

}  // namespace

Result<std::unique_ptr<lanes::OpenLane>> open_mosaic_shard_lane(
    const lanes::LaneOptions& options) {
  if (auto e = check_tpu_here(options.xla); !e) return e.error();
  auto open = xla::open_mesh(options, tpu_plugin(options.xla));
  if (!open) return open.error();
  auto target = target_of_all(**open);
  if (!target) return target.error();
  return xla::mesh_lane(
      {LaneId::mosaic, "mosaic"}, std::move(*open),
      [target = std::move(*target)](ShardWork& work,
                                    const AttentionCall& call) -> Result<void> {
        for (const bool backward : {false, true}) {
          if (backward && !call.backward) continue;
          auto e = add_pass(work, lanes::one_direction(call, backward), target);
          if (!e) return e;
        }
        return {};
      });
}

}  // namespace tessera::mosaic
