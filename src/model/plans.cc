// model/plans.cc: one request a mask, one contract for every batch.
#include "model/plans.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "lanes/cpu/plain_call.h"
#include "lanes/mosaic/settings.h"
#include "lanes/tensors.h"
#include "lanes/xla/arrays.h"
#include "lanes/xla/planned.h"
#include "plan/batch_state.h"
#include "tessera/contract.h"
#include "tessera/mosaic.h"

namespace tessera::model {

Result<std::vector<Request>> layer_requests(const ModelConfig& m, int64_t batch,
                                            int64_t queries, int64_t tokens,
                                            const Tile& tile) {
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
    request.q_len = queries;
    request.kv_len = tokens;
    request.tile = tile;
    out.push_back(std::move(request));
  }
  return out;
}

namespace {

// Of an attention's arrays.
Element element_of(Dtype dtype) {
  return dtype == Dtype::bf16 ? Element::bf16 : Element::f32;
}

Result<KernelPair> plan_kernels(const Request& request, const Facts& present,
                                AttentionCall call, const std::string& target) {
  std::array<mosaic::PlannedKernel, 2> out;
  for (const bool backward : {false, true}) {
    call.backward = backward;
    auto planned = mosaic::plan_kernel(
        request, present, call, target,
        mosaic::choose_passes(request, call).setting.options);
    if (!planned) return planned.error();
    out[backward ? 1 : 0] = std::move(*planned);
  }
  return KernelPair{std::move(out[0]), std::move(out[1]),
                    element_of(call.dtype)};
}

Result<CpuCall> plan_cpu(const Request& request, const Facts& present,
                         const AttentionCall& call) {
  const lanes::PlanSizes sizes = {request.batch, request.q_len, request.kv_len,
                                  static_cast<int64_t>(request.masks.size())};
  if (auto e = lanes::check_call("cpu", sizes, call); !e) return e.error();
  auto contract = make_ceiling_contract(request, present);
  if (!contract) return contract.error();
  CpuCall out;
  out.text = cpu::static_text(request, present);
  out.shape = call.shape;
  out.element = element_of(call.dtype);
  out.steps = contract->steps;
  for (const auto& [name, size] :
       cpu::plain_sizes(request, present, out.steps)) {
    out.integers.push_back({name, {Element::i32, {size}}});
  }
  return out;
}

Result<AttentionPlace> plan_place(const LayerSpec& spec, const Request& request,
                                  const Facts& present,
                                  const AttentionCall& call,
                                  const std::string& target) {
  AttentionPlace out;
  if (has_kernels(spec)) {
    auto kernels = plan_kernels(request, present, call, target);
    if (!kernels) return kernels.error();
    out.kernels = std::move(*kernels);
    return out;
  }
  if (calls_cpu(spec)) {
    auto planned = plan_cpu(request, present, call);
    if (!planned) return planned.error();
    out.cpu = std::move(*planned);
    return out;
  }
  auto contract = make_ceiling_contract(request, present);
  if (!contract) return contract.error();
  auto planned = xla::plan_call(request, present, std::move(*contract), call,
                                false, XlaMethod::worklist, "any");
  if (!planned) return planned.error();
  out.shape = std::move(planned->shape);
  return out;
}

Result<std::map<std::string, std::vector<int32_t>>> kernel_arrays(
    const AttentionPlace& place, const Batch& batch) {
  std::map<std::string, std::vector<int32_t>> out;
  for (const bool backward : {false, true}) {
    const mosaic::PlannedKernel& kernel =
        backward ? place.kernels->backward : place.kernels->forward;
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
    const std::string& target) {
  AttentionCall call;
  call.shape = {m.heads, m.kv_heads, m.head_dim, m.head_dim, {}, m.softcap};
  if (m.score_scale > 0) call.shape.scale = m.score_scale;
  call.dtype = products;
  call.backward = true;
  std::vector<AttentionPlace> out;
  for (const Request& request : requests) {
    auto place = plan_place(spec, request, present, call, target);
    if (!place) return place.error();
    place->prefix = fmt::format("plan{}.", out.size());
    if (request.kv_len != request.q_len) place->keys = request.kv_len;
    out.push_back(std::move(*place));
  }
  return out;
}

Result<std::map<std::string, std::vector<int32_t>>> plan_integers(
    const AttentionPlace& place, const Batch& batch) {
  if (place.kernels) return kernel_arrays(place, batch);
  std::map<std::string, std::vector<int32_t>> out;
  if (place.cpu) {
    auto arrays = cpu::plain_arrays(batch, place.cpu->steps);
    if (!arrays) return arrays.error();
    for (auto& [name, values] : *arrays) {
      out.emplace(place.prefix + name, std::move(values));
    }
    return out;
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
