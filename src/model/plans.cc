// model/plans.cc: one request a mask, one contract for every batch.
#include "model/plans.h"

#include <fmt/format.h>

#include <utility>

#include "lanes/xla/arrays.h"
#include "lanes/xla/planned.h"
#include "plan/batch_state.h"
#include "tessera/contract.h"

namespace tessera::model {

Result<std::vector<Request>> layer_requests(const ModelConfig& m, int64_t batch,
                                            int64_t tokens, const Tile& tile) {
  std::vector<int64_t> windows = m.windows;
  if (windows.empty()) windows.push_back(0);
  std::vector<Request> out;
  for (const int64_t window : windows) {
    auto mask = parse_mask(
        window == 0
            ? std::string("causal & documents")
            : fmt::format("causal & window({}, 0) & documents", window));
    if (!mask) return mask.error();
    Request request;
    request.masks = {std::move(*mask)};
    request.batch = batch;
    request.q_len = request.kv_len = tokens;
    request.tile = tile;
    out.push_back(std::move(request));
  }
  return out;
}

Result<std::vector<AttentionPlace>> attention_places(
    const ModelConfig& m, Dtype products, const std::vector<Request>& requests,
    const Facts& present) {
  AttentionCall call;
  call.shape = {m.heads, m.kv_heads, m.head_dim, m.head_dim, {}, m.softcap};
  if (m.score_scale > 0) call.shape.scale = m.score_scale;
  call.dtype = products;
  call.backward = true;
  std::vector<AttentionPlace> out;
  for (const Request& request : requests) {
    auto contract = make_ceiling_contract(request, present);
    if (!contract) return contract.error();
    auto planned = xla::plan_call(request, present, std::move(*contract), call,
                                  false, XlaMethod::worklist, "any");
    if (!planned) return planned.error();
    out.push_back(
        {std::move(planned->shape), fmt::format("plan{}.", out.size())});
  }
  return out;
}

Result<std::map<std::string, std::vector<int32_t>>> plan_integers(
    const AttentionPlace& place, const Batch& batch) {
  auto read = plan::read_batch(batch, "model");
  if (!read) return read.error();
  auto integers =
      xla::make_integers(place.shape, (*read)->sweep.bound, (*read)->plan);
  if (!integers) return integers.error();
  std::map<std::string, std::vector<int32_t>> out;
  for (auto& [name, values] : *integers) {
    out.emplace(place.prefix + name, std::move(values));
  }
  return out;
}

}  // namespace tessera::model
