// lanes/xla/shard_shape.h: what is static about the program of a batch's
// shards.
#pragma once

#include <optional>

#include "lanes/xla/shard_program.h"
#include "tessera/attention.h"
#include "tessera/batch.h"
#include "tessera/machine.h"
#include "tessera/shard.h"

namespace tessera::xla {

// An error where devices would differ in more than their arrays.
Result<ShardShape> shard_shape(const Batch& batch, const Shards& shards,
                               const AttentionCall& call, bool backward);

// The way back of a forward shape.
ShardShape backward_shape(ShardShape s, const AttentionCall& call);

// Of every argument and result of the program; an audit of its text gives the
// same.
std::string shard_fingerprint(const ShardShape& s);
ShardProgramArrays program_arrays(const ShardShape& s);

// What the program depends on, so that programs of other specs, which the
// fingerprint tells, have another key. `device` is what it runs on.
KernelContract shard_contract(const ShardShape& s,
                              const std::string& fingerprint,
                              const Shards& shards, const AttentionCall& call,
                              const std::string& device,
                              const std::optional<Lowering>& lowering = {});

}  // namespace tessera::xla
