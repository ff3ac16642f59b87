// model/spread.h: a step whose tokens lie over devices as a balance says: who
// has which, and what each device is handed of a batch.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/layer.h"
#include "model/mesh.h"
#include "model/plans.h"
#include "tessera/batch.h"
#include "tessera/shard.h"
#include "tessera/train.h"

namespace tessera::model {

// What holds for all batches. Requests are of all rows, one a mask.
struct Spread {
  Mesh mesh;
  TrainShards shards;  // a ceiling for each mask, and nothing left open
  AttentionCall call;  // of the whole model
};

// That the options' spec, mesh and model can be spread.
Result<void> check_spread(const TrainOptions& options);
// With ceilings that every batch fits where none were given.
Result<Spread> make_spread(const Mesh& mesh, const TrainShards& shards,
                           const AttentionCall& call,
                           const std::vector<Request>& requests);
// Of the spec's attention; kernels are made for the target.
Result<std::vector<AttentionPlace>> spread_places(
    const Spread& spread, const std::vector<Request>& requests,
    const LayerSpec& spec, const std::string& target = kKernelTarget,
    const std::optional<std::string>& lowering_reason = {});

// Of batches of these requests and the same rows: where tokens lie is the same
// for all masks. More than a ceiling is an error.
Result<std::vector<Shards>> spread_rows(
    const Spread& spread, const std::vector<BorrowedBatch>& batches);
// What they take, whatever the ceilings.
Result<std::vector<ShardCeilings>> spread_ceilings(
    const Spread& spread, const std::vector<BorrowedBatch>& batches);

// The larger of each number.
std::vector<ShardCeilings> joined(const std::vector<ShardCeilings>& a,
                                  const std::vector<ShardCeilings>& b);

// Which of a spread's shards a device has.
size_t shard_of(const Portion& portion);
// Of each shard.
Result<std::vector<Integers>> spread_integers(const AttentionPlace& place,
                                              const Batch& batch,
                                              const Shards& shards);

// Where a device's tokens are among those of all rows, -1 where it has none.
// `all`: token_order() of any mask.
std::span<const int64_t> tokens_of(std::span<const int64_t> all,
                                   const Portion& portion);
// A column of all rows as the device has it; 0 where it has no token.
std::vector<int32_t> taken(const std::vector<int32_t>& all,
                           std::span<const int64_t> tokens);
// The way back, of so many numbers a token.
void put_back(const std::vector<float>& part, std::span<const int64_t> tokens,
              std::vector<float>& all);

// Bytes that attention of a step sends along "seq", and what gathering sends.
struct Sent {
  int64_t bytes = 0, all_gather = 0;
};
// Of a layer. No shards: it gathers.
Sent sent_by_layer(const TrainOptions& options, const Shards* shards);

}  // namespace tessera::model
