// lanes/xla/shard_shape.h: the static shape of the program of a batch's shards.
#pragma once

#include <optional>

#include "lanes/xla/shard_program.h"
#include "tessera/attention.h"
#include "tessera/batch.h"
#include "tessera/machine.h"
#include "tessera/shard.h"

namespace tessera::xla {

// Fails if the devices would need different programs.
Result<ShardShape> shard_shape(const Batch& batch, const Shards& shards,
                               const AttentionCall& call, bool backward);

// The shape of the backward pass of a forward shape.
ShardShape backward_shape(ShardShape s, const AttentionCall& call);

// A fingerprint of every argument and result of the program. An audit of the
// program's text gives the same.
std::string shard_fingerprint(const ShardShape& s);
ShardProgramArrays program_arrays(const ShardShape& s);

// The contract of the program. Its key includes the fingerprint, so programs
// with other array specs have another key. `device`: what the program runs on.
KernelContract shard_contract(const ShardShape& s,
                              const std::string& fingerprint,
                              const Shards& shards, const AttentionCall& call,
                              const std::string& device,
                              const std::optional<Lowering>& lowering = {});

}  // namespace tessera::xla
