// lanes/xla/shard_shape.cc: the shape of one device, and its exchanges.
#include "lanes/xla/shard_shape.h"

#include <limits>

#include "base/fail.h"
#include "lanes/tensors.h"
#include "lanes/xla/planned.h"
#include "lanes/xla/shard_arrays.h"
#include "shard/plan_heads.h"

namespace tessera {
namespace xla {
namespace {

// A device may have only some of the plan heads. Which ones is read at run
// time, so that the program is the same on all devices.
void take_plan_heads(Shape& s, int64_t plan_heads) {
  if (plan_heads == s.plan_heads) return;
  s.numbered_masks = s.masks.size() > 1;
  if (s.pick_heads > 1) s.pick_heads = plan_heads;  // those of each device
  s.plan_heads = plan_heads;
}

}  // namespace

Result<ShardShape> shard_shape(const Batch& batch, const Shards& shards,
                               const AttentionCall& call, bool backward) {
  auto contract = make_contract(batch);
  if (!contract) return contract.error();
  auto plan_heads = shard::plan_heads_of_device("xla", shards);
  if (!plan_heads) return plan_heads.error();
  auto ok = lanes::check_call("xla", lanes::PlanSizes::of(batch.plan()), call);
  if (!ok) return ok.error();
  ShardShape out = {frame_of(shards), {}};
  Shape& s = out.local;
  s = call_shape(batch.request(), batch.facts(), *contract, call, backward,
                 XlaMethod::worklist);
  s.numbered = true;
  s.batch = 1;
  s.q_len = out.rows.tiles() * out.rows.tokens;
  s.kv_len = out.columns.tiles() * out.columns.tokens;
  s.heads = shards.shapes.heads;
  s.kv_heads = shards.shapes.kv_heads;
  s.steps = shards.shapes.steps;
  take_plan_heads(s, *plan_heads);
  // The program counts steps in 32 bits; tokens are at most 2^14 tiles.
  const int64_t visits = s.units() / s.plan_heads;
  const double steps =
      static_cast<double>(s.steps) * static_cast<double>(visits);
  if (steps > std::numeric_limits<int32_t>::max()) {
    return over_limit(
        "xla", "steps of a device must count to at most {}, found {:.0f}",
        std::numeric_limits<int32_t>::max(), steps);
  }
  return out;
}

ShardShape backward_shape(ShardShape s, const AttentionCall& call) {
  s.local.backward = true;
  s.local.dlse = call.dlse;
  return s;
}

ShardProgramArrays program_arrays(const ShardShape& s) {
  return program_arrays(s, {shard_arguments(s), shard_results(s)});
}

std::string shard_fingerprint(const ShardShape& s) {
  return spec_fingerprint(s.mesh, shard_program_specs(s));
}

KernelContract shard_contract(const ShardShape& s,
                              const std::string& fingerprint,
                              const Shards& shards, const AttentionCall& call,
                              const std::string& device,
                              const std::optional<Lowering>& lowering) {
  KernelChoice choice = call_choice(s.local, call, device, lowering);
  choice.sharding = fingerprint;
  // The contract of the shards takes the place of the plan's.
  return make_kernel_contract(
      {shards.contract_key, shards.contract_text, {}, 0, 0, {}, {}}, choice);
}

}  // namespace xla

Result<std::string> program_text(const Batch& batch, const Shards& shards,
                                 const AttentionCall& call, bool backward) {
  auto shape = xla::shard_shape(batch, shards, call, backward);
  if (!shape) return shape.error();
  return xla::program_text(*shape);
}

Result<ShardProgramArrays> shard_program_arrays(const Batch& batch,
                                                const Shards& shards,
                                                const AttentionCall& call,
                                                bool backward) {
  auto shape = xla::shard_shape(batch, shards, call, backward);
  if (!shape) return shape.error();
  return xla::program_arrays(*shape);
}

Result<std::vector<ShardIntegers>> shard_integers(const Batch& batch,
                                                  const Shards& shards,
                                                  const AttentionCall& call) {
  auto shape = xla::shard_shape(batch, shards, call, false);
  if (!shape) return shape.error();
  auto of_shards = xla::make_shard_integers(*shape, batch, shards);
  if (!of_shards) return of_shards.error();
  std::vector<ShardIntegers> out;
  for (const xla::ShardArray& a : xla::shard_arguments(*shape)) {
    if (!a.is_own) continue;
    ShardIntegers& all = out.emplace_back();
    all.name = a.part.name;
    for (const xla::Integers& one : *of_shards) {
      const std::vector<int32_t>& values = one.at(all.name);
      all.values.insert(all.values.end(), values.begin(), values.end());
    }
  }
  return out;
}

std::vector<int64_t> token_order(const Batch& batch, const Shards& shards,
                                 bool queries) {
  const Plan& plan = batch.plan();
  const int64_t tokens = queries ? plan.q_len : plan.kv_len;
  const int64_t tile = queries ? shards.tile.q : shards.tile.kv;
  const int64_t own =
      queries ? shards.shapes.own_rows : shards.shapes.own_columns;
  std::vector<int64_t> out;
  for (const Shard& shard : shards.shards) {
    if (shard.head != 0) continue;  // shards along "head" hold the same tokens
    const std::vector<TileAt>& tiles = queries ? shard.rows : shard.columns;
    for (int64_t i = 0; i < own; ++i) {
      const TileAt& at = tiles[static_cast<size_t>(i)];
      for (int64_t t = 0; t < tile; ++t) {
        const int64_t token = at.tile * tile + t;
        const bool there = at.tile >= 0 && token < tokens;
        out.push_back(there ? at.batch_row * tokens + token : -1);
      }
    }
  }
  return out;
}

}  // namespace tessera
