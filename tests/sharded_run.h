// tests/sharded_run.h: runs shards one by one as devices would. Each has its
// own buffers, filled only by its own tiles and by the rounds, and parts of a
// softmax are merged by log-sum-exp.
#pragma once

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tessera/shard.h"
#include "tests/random_case.h"

namespace tessera::testing {

struct ShardedCase {
  RandomCase plan;
  Mesh mesh;
  ShardOptions options;
};
std::string describe(const ShardedCase& c);

// A case with this mask and a random mesh of 1 to 16 shards, heads and balance.
ShardedCase random_sharded(const RandomCase& plan);

// Checks pair by pair that every legal pair is computed exactly once, by a
// shard that has its tiles. Returns what is wrong, or nothing.
std::optional<std::string> pairs_fault(const ShardedCase& c, const Batch& batch,
                                       const Shards& shards);

// Runs forward and backward on random arrays, and checks the results of all
// shards against fp64.
std::optional<std::string> run_fault(const ShardedCase& c, const Batch& batch,
                                     const Shards& shards);

}  // namespace tessera::testing
