// model/routed_attention.cc: the attention slot of a clustered layer: a router,
// then attention over its picks by the xla lane or a CPU call. Picks stay on
// the device, and the backward pass reads those of the forward pass.
#include <utility>

#include "model/padding.h"
#include "model/router.h"

namespace tessera::model {
namespace {

class RoutedAttention final : public Layer {
 public:
  RoutedAttention(const AttentionPlace& plan, xla::Shape picking, LayerPtr own)
      : plan_(plan), shape_(std::move(picking)), own_(std::move(own)) {}

  std::vector<ModelParameter> parameters() const override { return {}; }

  Passed forward(const Site& at, const Values& parameters,
                 const Values& inputs) const override {
    Writer& w = at.w;
    bind_plan(w);
    const xla::Shape& s = shape_;
    const Value q = grown(w, w.convert(inputs[0], s.element),
                          {s.batch, s.heads, s.q_len, s.head_dim});
    const Value k = grown(w, w.convert(inputs[1], s.element),
                          {s.batch, s.kv_heads, s.kv_len, s.head_dim});
    const Picked picked = write_router(w, s, plan_.route, q, k);
    Values kept = {picked.picks};
    if (plan_.cpu) {  // the call takes unpadded picks
      Dims dims = kept[0].dims();
      for (const size_t d : {0, 2}) dims[d] = inputs[0].dims()[d];
      kept[0] = shrunk(w, kept[0], dims);
    }
    if (s.method == XlaMethod::worklist) {
      const PickedSteps chosen =
          write_picked_steps(w, s, plan_.route, picked,
                             {w.argument("steps"), w.argument("range")});
      kept.push_back(chosen.steps);
      kept.push_back(chosen.range);
    }
    bind_picked(w, kept);
    Passed out = own_->forward(at, parameters, inputs);
    append(out.saved, kept);
    return out;
  }

  Returned backward(const Site& at, const Values& parameters,
                    const Values& saved,
                    const Values& gradients) const override {
    const auto theirs =
        saved.end() - (shape_.method == XlaMethod::worklist ? 3 : 1);
    bind_plan(at.w);
    bind_picked(at.w, {theirs, saved.end()});
    return own_->backward(at, parameters, {saved.begin(), theirs}, gradients);
  }

  std::optional<Flops> flops(int64_t rows) const override {
    return own_->flops(rows);
  }

 private:
  // Binds the plan's integers under their names in the attention programs.
  void bind_plan(Writer& w) const {
    for (const xla::Argument& a : integers_of(plan_)) {
      w.bind(a.name.substr(plan_.prefix.size()), w.argument(a.name));
    }
  }
  static void bind_picked(Writer& w, const Values& kept) {
    const char* const names[] = {"picks", "steps", "range"};
    for (size_t i = 0; i < kept.size(); ++i) w.bind(names[i], kept[i]);
  }

  AttentionPlace plan_;
  xla::Shape shape_;
  LayerPtr own_;
};

// The place for the attention after the router: integers have no prefix.
AttentionPlace without_route(AttentionPlace place) {
  place.prefix.clear();
  place.route = {};
  return place;
}

}  // namespace

LayerPtr make_routed_attention(const AttentionPlace& place, XlaMethod method) {
  AttentionPlace own = without_route(place);
  auto picking = picking_shape(place, method);
  if (!picking) return nullptr;
  own.shape = *picking;
  return std::make_unique<RoutedAttention>(place, std::move(*picking),
                                           make_attention(own, method));
}

LayerPtr make_routed_cpu_attention(const AttentionPlace& place) {
  auto picking = picking_shape(place, XlaMethod::dense);
  if (!picking) return nullptr;
  return std::make_unique<RoutedAttention>(
      place, std::move(*picking), make_cpu_attention(without_route(place)));
}

}  // namespace tessera::model
