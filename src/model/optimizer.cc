// model/optimizer.cc: AdamW; with g the gradient,
//   m' = b1 m + (1 - b1) g      v' = b2 v + (1 - b2) g^2
//   p' = p - rate (c1 m' / (sqrt(c2 v') + eps) + decay p)
#include "model/optimizer.h"

namespace tessera::model {
namespace {

Value rate_of(Writer& w, const Value& rates, Rate which) {
  const auto at = static_cast<int64_t>(which);
  return w.reshape(w.part(rates, 0, at, at + 1), {});
}

}  // namespace

Value squares_of(Writer& w, const Values& gradients) {
  Value sum = w.real(0);
  for (const Value& g : gradients) {
    Dims all;
    for (size_t i = 0; i < g.dims().size(); ++i) {
      all.push_back(static_cast<int64_t>(i));
    }
    sum = w.add(sum, w.reduce_sum(w.mul(g, g), all));
  }
  return sum;
}

Value clip_scale(Writer& w, const Value& norm, const Value& rates) {
  const Value most = rate_of(w, rates, Rate::max_norm);
  const Value above = w.compare(xla::Compare::greater, norm, most);
  return w.select(above, w.div(most, norm), w.real(1));
}

Moments write_adamw(Writer& w, const OptimizerSettings& a,
                    const Moments& before, const Value& gradient,
                    const Value& rates, const Value& scale) {
  const Dims& dims = gradient.dims();
  const auto number = [&](double v) { return w.real(v, dims); };
  const auto rate = [&](Rate which) {
    return w.broadcast(rate_of(w, rates, which), dims, {});
  };
  const Value g = w.mul(gradient, w.broadcast(scale, dims, {}));
  Moments out;
  out.first = w.add(w.mul(number(a.beta1), before.first),
                    w.mul(number(1 - a.beta1), g));
  out.second = w.add(w.mul(number(a.beta2), before.second),
                     w.mul(number(1 - a.beta2), w.mul(g, g)));
  const Value root = w.sqrt(w.mul(out.second, rate(Rate::correct2)));
  Value move =
      w.div(w.mul(out.first, rate(Rate::correct1)), w.add(root, number(a.eps)));
  if (dims.size() > 1) {
    move = w.add(move, w.mul(number(a.weight_decay), before.value));
  }
  out.value = w.sub(before.value, w.mul(rate(Rate::learning), move));
  return out;
}

}  // namespace tessera::model
