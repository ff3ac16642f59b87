// model/plans.cc: one request for each mask, one contract for all batches.
#include "model/plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "base/fail.h"
#include "base/of_layer.h"
#include "lanes/cpu/batch_arrays.h"
#include "lanes/mosaic/settings.h"
#include "lanes/tensors.h"
#include "lanes/xla/arrays.h"
#include "lanes/xla/planned.h"
#include "model/routes.h"
#include "plan/batch_state.h"
#include "tessera/batch.h"
#include "tessera/mosaic.h"

namespace tessera::model {

namespace {

// Windows and routes each repeat with their own period.
int64_t number_of_masks(const ModelConfig& m) {
  const auto windows =
      static_cast<int64_t>(std::max<size_t>(1, m.windows.size()));
  if (m.routes.empty()) return windows;
  const auto routes = static_cast<int64_t>(m.routes.size());
  return std::min(m.layers, std::lcm(windows, routes));
}

}  // namespace

Result<std::vector<Request>> layer_requests(const ModelConfig& m, int64_t batch,
                                            int64_t queries, int64_t tokens,
                                            const Tile& tile) {
  std::vector<Request> out;
  for (int64_t i = 0; i < number_of_masks(m); ++i) {
    const int64_t window = of_layer(m.windows, i);
    auto mask = parse_mask(
        window == 0
            ? std::string("causal & documents")
            : fmt::format("causal & window({}, 0) & documents", window));
    if (!mask) return mask.error();
    Request request;
    request.masks = {std::move(*mask)};
    request.batch = batch;
    request.q_len = queries;
    request.kv_len = tokens;
    request.tile = tile;
    out.push_back(std::move(request));
  }
  return out;
}

Result<void> remake_batches(const std::vector<Request>& requests,
                            const Facts& facts,
                            std::vector<BorrowedBatch>& batches) {
  for (size_t i = 0; i < requests.size(); ++i) {
    if (i < batches.size()) {
      if (auto e = batches[i].remake(facts); !e) return e;
      continue;
    }
    auto made = BorrowedBatch::make(requests[i], facts);
    if (!made) return made.error();
    batches.push_back(std::move(*made));
  }
  return {};
}

AttentionCall attention_call(const ModelConfig& m, Dtype products) {
  AttentionCall out;
  out.shape = {m.heads, m.kv_heads, m.head_dim, m.head_dim, {}, m.softcap};
  if (m.score_scale > 0) out.shape.scale = m.score_scale;
  out.dtype = products;
  out.backward = true;
  return out;
}

namespace {

// What TPU kernels are made for, apart from the request and the call.
struct KernelsFor {
  const std::string& target;
  const std::optional<std::string>& lowering_reason;
};

Result<KernelPair> plan_kernels(const Request& request, const Facts& present,
                                AttentionCall call,
                                const KernelsFor& made_for) {
  std::array<mosaic::PlannedKernel, 2> out;
  for (const bool backward : {false, true}) {
    call.backward = backward;
    const mosaic::ChosenSetting chosen =
        mosaic::fit_passes(request, present, call, made_for.target,
                           // a run ends at numbers that are not finite
                           {.lowering_reason = made_for.lowering_reason,
                            .numbers = Numbers::finite});
    auto planned = mosaic::plan_kernel(request, present, call, made_for.target,
                                       chosen.setting.options);
    if (!planned) return planned.error();
    out[backward ? 1 : 0] = std::move(*planned);
  }
  return KernelPair{std::move(out[0]), std::move(out[1]),
                    xla::element_of(call.dtype)};
}

// For a clustered layer the mask and the facts of the call include picks.
Result<CpuCall> plan_cpu(Request request, Facts present,
                         const AttentionCall& call, const LayerRoute& route) {
  const lanes::PlanSizes sizes = {request.batch, request.q_len, request.kv_len,
                                  static_cast<int64_t>(request.masks.size())};
  if (auto e = lanes::check_call("cpu", sizes, call); !e) return e.error();
  CpuCall out;
  out.shape = call.shape;
  out.element = xla::element_of(call.dtype);
  if (route.top == 0) {
    auto contract = make_ceiling_contract(request, present);
    if (!contract) return contract.error();
    out.steps = contract->steps;
  }
  for (const auto& [name, size] :
       cpu::batch_array_sizes(request, present, out.steps)) {
    out.integers.push_back({name, {Element::i32, {size}}});
  }
  if (route.top > 0) {
    auto mask = routed_mask(request.masks.front(), route);
    if (!mask) return mask.error();
    request.masks = {std::move(*mask)};
    const int64_t heads =
        picking_heads(route, call.shape.heads, call.shape.kv_heads);
    present.picks = Picks{{}, heads, route.top};
    out.integers.push_back(
        {std::string(kPicksName),
         {Element::i32, {request.batch, heads, request.q_len, route.top}}});
  }
  out.text = cpu::static_text(request, present);
  return out;
}

// Picks need a spec whose attention reads lists of steps, or plans by itself.
Result<void> check_route(const LayerSpec& spec, const Mask& mask,
                         const LayerRoute& route) {
  if (route.top == 0) return {};
  if (has_kernels(spec)) {
    return invalid("train",
                   "clustered layers are of the specs xla, cpu and reference, "
                   "found {} for {}",
                   to_string(route), spec.name);
  }
  auto picks = routed_mask(mask, route);
  if (!picks) return picks.error();
  return {};
}

Result<AttentionPlace> plan_place(const LayerSpec& spec, const Request& request,
                                  const Facts& present,
                                  const AttentionCall& call,
                                  const LayerRoute& route,
                                  const KernelsFor& made_for) {
  AttentionPlace out;
  out.route = route;
  if (has_kernels(spec)) {
    auto kernels = plan_kernels(request, present, call, made_for);
    if (!kernels) return kernels.error();
    out.kernels = std::move(*kernels);
    return out;
  }
  if (calls_cpu(spec)) {
    auto planned = plan_cpu(request, present, call, route);
    if (!planned) return planned.error();
    out.cpu = std::move(*planned);
    if (route.top == 0) return out;
  }
  auto contract = make_ceiling_contract(request, present);
  if (!contract) return contract.error();
  auto planned = xla::plan_call(request, present, std::move(*contract), call,
                                false, XlaMethod::worklist, {"any"});
  if (!planned) return planned.error();
  out.shape = std::move(planned->shape);
  if (out.cpu) out.shape.method = XlaMethod::dense;  // its router reads no list
  return out;
}

Result<Integers> kernel_arrays(const AttentionPlace& place,
                               const Batch& batch) {
  Integers out;
  for (const bool backward : {false, true}) {
    const mosaic::PlannedKernel& kernel = place.kernels->of(backward);
    auto made = make_mosaic_arrays(batch, kernel.kernel);
    if (!made) return made.error();
    const std::string prefix = kernel_prefix(place, backward);
    for (MosaicArray& array : named_arrays(kernel.kernel, std::move(*made))) {
      out[prefix + std::string(array.name)] = std::move(array.values);
    }
  }
  return out;
}

}  // namespace

Result<std::vector<AttentionPlace>> attention_places(
    const ModelConfig& m, const LayerSpec& spec, Dtype products,
    const std::vector<Request>& requests, const Facts& present,
    const std::string& target,
    const std::optional<std::string>& lowering_reason) {
  const AttentionCall call = attention_call(m, products);
  std::vector<AttentionPlace> out;
  for (const Request& request : requests) {
    const LayerRoute route =
        of_layer(m.routes, static_cast<int64_t>(out.size()));
    auto e = check_route(spec, request.masks.front(), route);
    if (!e) return e.error();
    auto place = plan_place(spec, request, present, call, route,
                            {target, lowering_reason});
    if (!place) return place.error();
    place->prefix = fmt::format("plan{}.", out.size());
    if (request.kv_len != request.q_len) place->keys = request.kv_len;
    out.push_back(std::move(*place));
  }
  return out;
}

Result<Integers> plan_integers(const AttentionPlace& place,
                               const Batch& batch) {
  if (place.kernels) return kernel_arrays(place, batch);
  Integers out;
  if (place.cpu) {
    auto arrays = cpu::batch_arrays(batch, place.cpu->steps);
    if (!arrays) return arrays.error();
    for (auto& [name, values] : *arrays) {
      out.emplace(place.prefix + name, std::move(values));
    }
    if (place.route.top == 0) return out;
  }
  auto read = plan::read_batch(batch, "model");
  if (!read) return read.error();
  auto integers =
      xla::make_integers(place.shape, (*read)->sweep.bound, (*read)->plan);
  if (!integers) return integers.error();
  for (auto& [name, values] : *integers) {
    out.emplace(place.prefix + name, std::move(values));
  }
  return out;
}

}  // namespace tessera::model
