// model/spread.h: a step whose tokens lie over devices as a balance says: which
// device has which tokens, and what each device gets of a batch.
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

// What holds for all batches; there is one request, of all rows, per mask.
struct Spread {
  Mesh mesh;
  TrainShards shards;  // ceilings of each mask, all of them set
  AttentionCall call;  // of the whole model
};

// Checks that the options' spec, mesh and model allow a spread step.
Result<void> check_spread(const TrainOptions& options);
// Ceilings that are not given are set so that every batch fits.
Result<Spread> make_spread(const Mesh& mesh, const TrainShards& shards,
                           const AttentionCall& call,
                           const std::vector<Request>& requests);
// Places for the spec's attention; TPU kernels are made for the target.
Result<std::vector<AttentionPlace>> spread_places(
    const Spread& spread, const std::vector<Request>& requests,
    const LayerSpec& spec, const std::string& target = kKernelTarget,
    const std::optional<std::string>& lowering_reason = {});

// The shards of each batch. All batches are of the same rows, and tokens lie
// alike for all masks. A batch that exceeds a ceiling is an error.
Result<std::vector<Shards>> spread_rows(
    const Spread& spread, const std::vector<BorrowedBatch>& batches);
// What these batches need, whatever the ceilings of `spread` are.
Result<std::vector<ShardCeilings>> spread_ceilings(
    const Spread& spread, const std::vector<BorrowedBatch>& batches);

// Takes the larger of each pair of numbers.
std::vector<ShardCeilings> joined(const std::vector<ShardCeilings>& a,
                                  const std::vector<ShardCeilings>& b);

// The index of the device's shard.
size_t shard_of(const Portion& portion);
// The integers of each shard.
Result<std::vector<Integers>> spread_integers(const AttentionPlace& place,
                                              const Batch& batch,
                                              const Shards& shards);

// Positions of a device's tokens among those of all rows, -1 for a slot without
// a token. `all` is token_order() of any mask.
std::span<const int64_t> tokens_of(std::span<const int64_t> all,
                                   const Portion& portion);
// A column as the device has it; 0 for a slot without a token.
std::vector<int32_t> taken(const std::vector<int32_t>& all,
                           std::span<const int64_t> tokens);
// The inverse of taken(), for an array with several numbers per token.
void put_back(const std::vector<float>& part, std::span<const int64_t> tokens,
              std::vector<float>& all);

// Bytes that attention sends along "seq" in a step, by shards and by gathering.
struct Sent {
  int64_t bytes = 0, all_gather = 0;
};
// Bytes of one layer. If `shards` is null, the layer gathers.
Sent sent_by_layer(const TrainOptions& options, const Shards* shards);

}  // namespace tessera::model
