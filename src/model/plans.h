// model/plans.h: the masks of a model's layers as requests, and their plans as
// what a step's program reads.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/program.h"
#include "tessera/batch.h"
#include "tessera/plan.h"

namespace tessera::model {

// One for each different mask: causal & documents, within the windows. A
// clustered layer picks among what it has. Queries are a part of a row's
// tokens, or all.
Result<std::vector<Request>> layer_requests(const ModelConfig& model,
                                            int64_t batch, int64_t queries,
                                            int64_t tokens, const Tile& tile);

// The attention of each layer, forward and backward.
AttentionCall attention_call(const ModelConfig& model, Dtype products);

// What kernels are made for where nobody says.
inline constexpr const char* kKernelTarget = "v6e:1x1";

// Where each finds its plan, for any batch: contracts are those of ceilings.
// `present` says which facts batches will have.
Result<std::vector<AttentionPlace>> attention_places(
    const ModelConfig& model, const LayerSpec& spec, Dtype products,
    const std::vector<Request>& requests, const Facts& present,
    const std::string& target = kKernelTarget,
    const std::optional<std::string>& lowering_reason = {});

// Batches of these requests and facts, in the memory of those before.
Result<void> remake_batches(const std::vector<Request>& requests,
                            const Facts& facts,
                            std::vector<BorrowedBatch>& batches);

// What a batch of the request puts there, by the program's names.
using Integers = std::map<std::string, std::vector<int32_t>>;
Result<Integers> plan_integers(const AttentionPlace& place, const Batch& batch);

}  // namespace tessera::model
