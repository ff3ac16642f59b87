// run/features.cc: what a request asks of a lane, in plain numbers.
#include "run/features.h"

#include <algorithm>

#include "mask/bind.h"
#include "tessera/layouts.h"

namespace tessera {
namespace {

constexpr uint32_t bit(Atom atom) { return 1U << static_cast<unsigned>(atom); }

void add(const Expr& e, RequestFeatures& f) {
  switch (e.atom) {
    case Atom::op_or:
    case Atom::op_not:
      f.only_and = false;
      break;
    case Atom::op_and:
      break;
    default:
      f.atoms |= bit(e.atom);
  }
  for (const Expr& child : e.children) add(child, f);
}

// A name that simplification dropped still vetoes pairs, so it counts.
void add(const Names& names, RequestFeatures& f) {
  if (names.prefix) f.atoms |= bit(Atom::prefix);
  if (names.documents) f.atoms |= bit(Atom::documents);
  if (names.segments) f.atoms |= bit(Atom::segments);
  if (names.tree) f.atoms |= bit(Atom::tree);
  if (names.same != 0) f.atoms |= bit(Atom::same);
  if (names.picks) f.atoms |= bit(Atom::blocks);
}

RequestClass class_of(const RequestFeatures& f) {
  constexpr uint32_t kSparse = bit(Atom::documents) | bit(Atom::segments) |
                               bit(Atom::blocks) | bit(Atom::routed) |
                               bit(Atom::tree) | bit(Atom::same);
  if ((f.atoms & kSparse) != 0) return RequestClass::sparse_blocks;
  if ((f.atoms & bit(Atom::window)) != 0 || f.shape.softcap != 0) {
    return RequestClass::custom;
  }
  if (f.atoms == bit(Atom::causal) && f.only_and) {
    return RequestClass::plain_causal;
  }
  return RequestClass::other;
}

}  // namespace

CallFeatures run::call_features(const AttentionCall& call,
                                const SessionOptions& options) {
  CallFeatures out;
  out.dtype = call.dtype;
  out.sink_logits = call.sink_logits;
  out.backward = call.backward;
  out.sink_telemetry = call.sink_telemetry;
  out.devices = options.mesh.devices();
  out.numbers = options.xla.numbers;
  if (options.artifact) take_artifact(options.artifact->spec, out);
  return out;
}

void run::take_artifact(const BridgeSpec& spec, CallFeatures& out) {
  out.splash = spec.splash;
  out.bridge_artifact = !spec.splash;
  out.artifact_platforms = spec.platforms;
}

RequestFeatures features_of(const Request& request, const Facts& present,
                            const AttentionShape& shape,
                            const CallFeatures& call) {
  RequestFeatures f;
  for (const Mask& mask : request.masks) {
    add(mask.expr, f);
    add(mask.names, f);
  }
  f.masks = static_cast<int64_t>(request.masks.size());
  f.plan_heads = f.masks;
  if (present.picks && mask::names_of(request).picks) {
    f.plan_heads = std::max(f.plan_heads, present.picks->heads);
  }
  f.batch = request.batch;
  f.q_len = request.q_len;
  f.kv_len = request.kv_len;
  f.tile = request.tile;
  f.shape = shape;
  f.call = call;
  f.request_class = class_of(f);
  return f;
}

PlanFacts plan_facts(const Plan& plan) {
  const Worklist& w = plan.forward;
  return {w.lists * w.rows * w.columns, static_cast<int64_t>(w.entries.size()),
          grid_width(w)};
}

int density_class(double density) {
  constexpr int kMaxClass = 11;
  if (!(density > 0)) return kMaxClass;
  // A plan that skips no tile has a class of its own.
  if (density >= 1) return 0;
  int out = 1;
  for (double half = 0.5; out < kMaxClass && density <= half; half /= 2) ++out;
  return out;
}

}  // namespace tessera
