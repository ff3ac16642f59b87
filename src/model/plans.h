// model/plans.h: turns the masks of a model's layers into requests, and their
// plans into what a step's program reads.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/program.h"
#include "tessera/batch.h"
#include "tessera/plan.h"

namespace tessera::model {

// One request for each different mask: causal & documents, within the layer's
// window. A clustered layer picks among the tiles of its request. `queries` may
// be fewer than `tokens`, where a device has a part of each row.
Result<std::vector<Request>> layer_requests(const ModelConfig& model,
                                            int64_t batch, int64_t queries,
                                            int64_t tokens, const Tile& tile);

// The attention call of each layer, forward and backward.
AttentionCall attention_call(const ModelConfig& model, Dtype products);

// The target of kernels if the caller names none.
inline constexpr const char* kKernelTarget = "v6e:1x1";

// One place for each request, valid for any batch, since contracts are made
// from ceilings. `present` says which facts batches will have.
Result<std::vector<AttentionPlace>> attention_places(
    const ModelConfig& model, const LayerSpec& spec, Dtype products,
    const std::vector<Request>& requests, const Facts& present,
    const std::string& target = kKernelTarget,
    const std::optional<std::string>& lowering_reason = {});

// Makes batches of these requests and facts in the memory of `batches`.
Result<void> remake_batches(const std::vector<Request>& requests,
                            const Facts& facts,
                            std::vector<BorrowedBatch>& batches);

// The integers that a batch gives the place, by their names in the program.
using Integers = std::map<std::string, std::vector<int32_t>>;
Result<Integers> plan_integers(const AttentionPlace& place, const Batch& batch);

}  // namespace tessera::model
