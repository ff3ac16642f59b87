// lanes/xla/planned.cc: lengths in buckets, and all else a program depends on.
#include "lanes/xla/planned.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/fail.h"
#include "base/integers.h"
#include "mask/bind.h"
#include "tessera/machine.h"

namespace tessera::xla {
namespace {

// Version of the programs' text. Another version is another contract.
constexpr int64_t kKernelVersion = 1;

}  // namespace

Element element_of(Dtype dtype) {
  if (dtype == Dtype::bf16) return Element::bf16;
  return dtype == Dtype::f16 ? Element::f16 : Element::f32;
}

Dtype dtype_of(Element element) {
  switch (element) {
    case Element::i1:
      return Dtype::boolean;
    case Element::i32:
      return Dtype::i32;
    case Element::f16:
      return Dtype::f16;
    case Element::bf16:
      return Dtype::bf16;
    case Element::f64:
      return Dtype::f64;
    case Element::f32:
      break;
  }
  return Dtype::f32;
}

Shape request_shape(const Request& request, XlaMethod method) {
  Shape s;
  s.method = method;
  s.batch = bucket(request.batch);
  s.q_len = round_up(bucket(request.q_len), request.tile.q);
  s.kv_len = round_up(bucket(request.kv_len), request.tile.kv);
  s.tile = request.tile;
  s.logical_block = request.logical_block;
  return s;
}

Shape call_shape(const Request& request, const Facts& present,
                 const PlanContract& contract, const AttentionCall& call,
                 bool backward, XlaMethod method) {
  const AttentionShape& shape = call.shape;
  Shape s = request_shape(request, method);
  s.backward = backward;
  s.heads = shape.heads;
  s.kv_heads = shape.kv_heads;
  s.plan_heads = static_cast<int64_t>(request.masks.size());
  s.head_dim = shape.head_dim;
  s.v_head_dim = shape.v_head_dim;
  s.steps = contract.steps;
  s.element = element_of(call.dtype);
  s.scale = shape.scale_or_default();
  s.softcap = shape.softcap;
  s.sink_logits = call.sink_logits;
  s.dlse = backward && call.dlse;
  s.masks = request.masks;
  s.window_bounds = static_cast<int64_t>(contract.window_bounds.size());
  if (present.picks && mask::names_of(request).picks) {
    s.pick_heads = present.picks->heads;
    s.picks_k = bucket(present.picks->k);
    // A query then has one slot for each pick of its row's union, which any
    // batch may fill up to max_union.
    if (present.picks->meaning == RouteMeaning::tile_union) {
      s.picks_k = std::max(
          s.picks_k,
          std::min(request.ceilings.max_union,
                   ceil_div(s.kv_len, mask::names_of(request).picks_block)));
    }
    s.plan_heads = std::max(s.plan_heads, s.pick_heads);
  }
  return s;
}

Result<std::optional<Lowering>> lower_on(const Shape& s,
                                         const MadeFor& made_for) {
  const auto chip = chip_of_device(made_for.kind);
  if (!chip) return std::optional<Lowering>();
  return lower_on(s, *chip, made_for.lowering_reason);
}

Result<std::optional<Lowering>> lower_on(
    const Shape& s, const Chip& chip,
    const std::optional<std::string>& reason) {
  if (s.method == XlaMethod::dense) return std::optional<Lowering>();
  auto lowering = lower_tile("xla", {s.block_q(), s.block_kv()},
                             s.logical_block, chip, reason);
  if (!lowering) return lowering.error();
  return std::optional(std::move(*lowering));
}

KernelChoice call_choice(const Shape& s, const AttentionCall& call,
                         const std::string& target,
                         const std::optional<Lowering>& lowering) {
  KernelChoice choice;
  choice.lane = "xla";
  choice.target = target;
  choice.direction = s.sinks ? "sinks" : s.backward ? "backward" : "forward";
  choice.dtype = to_string(call.dtype);
  choice.shape = call.shape;
  choice.parameters = {{"method", static_cast<int64_t>(s.method)},
                       {"sink_logits", call.sink_logits ? 1 : 0},
                       {"dlse", s.dlse ? 1 : 0},
                       {"pick_heads", s.pick_heads},
                       {"picks", s.picks_k},
                       {"kernel_version", kKernelVersion}};
  if (lowering) choice.lowering_reason = lowering->reason;
  return choice;
}

namespace {

Result<Planned> plan_shape(Shape shape, PlanContract contract,
                           const AttentionCall& call, const MadeFor& made_for) {
  Planned out;
  out.shape = std::move(shape);
  const Shape& s = out.shape;
  if (s.heads % s.plan_heads != 0) {
    return invalid("xla",
                   "heads must be a multiple of the plan's, found {} "
                   "for {}",
                   s.heads, s.plan_heads);
  }
  // The program counts in 32 bits.
  const double most = std::numeric_limits<int32_t>::max();
  const double units =
      static_cast<double>(s.batch) * static_cast<double>(s.units());
  const int64_t visits = s.units() / s.plan_heads;  // of each list
  const double steps =
      static_cast<double>(s.steps) * static_cast<double>(visits);
  if (units > most || steps > most) {
    return over_limit("xla",
                      "steps and heads of all batch rows must count to at most "
                      "{:.0f}, found {:.0f} and {:.0f}",
                      most, steps, units);
  }

  auto lowering = lower_on(s, made_for);
  if (!lowering) return lowering.error();
  out.lowering = std::move(*lowering);
  const KernelChoice choice =
      call_choice(s, call, made_for.target, out.lowering);
  out.plan = std::move(contract);
  out.kernel = make_kernel_contract(out.plan, choice);
  return out;
}

}  // namespace

Result<Planned> plan_call(const Request& request, const Facts& present,
                          PlanContract contract, const AttentionCall& call,
                          bool backward, XlaMethod method,
                          const MadeFor& made_for) {
  Shape shape = call_shape(request, present, contract, call, backward, method);
  return plan_shape(std::move(shape), std::move(contract), call, made_for);
}

Result<Planned> plan_sinks(const Request& request, const Facts& present,
                           PlanContract contract, const AttentionCall& call,
                           XlaMethod method, const MadeFor& made_for) {
  Shape shape = call_shape(request, present, contract, call, false, method);
  shape.sinks = true;
  return plan_shape(std::move(shape), std::move(contract), call, made_for);
}

}  // namespace tessera::xla
