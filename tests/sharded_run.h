// tests/sharded_run.h: shards run one by one as devices would: each has its own
// buffers, which only its own tiles and the rounds fill, and parts of a softmax
// are joined by their log-sum-exp.
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

// A mesh of 1 to 16 shards, heads and a way to balance around a mask.
ShardedCase random_sharded(const RandomCase& plan);

// What is wrong with who computes what, judged pair by pair; nothing where
// every legal pair is computed exactly once, by a shard that has its tiles.
std::optional<std::string> pairs_fault(const ShardedCase& c, const Batch& batch,
                                       const Shards& shards);

// Runs forward and backward on random arrays, and judges what all shards wrote
// by fp64.
std::optional<std::string> run_fault(const ShardedCase& c, const Batch& batch,
                                     const Shards& shards);

}  // namespace tessera::testing
