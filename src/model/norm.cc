// model/norm.cc: y = x^ g (+ b) over a row x of n numbers, where x^ = r x and
// r = 1 / sqrt(mean(x^2) + eps); a layer norm subtracts the mean of x first.
//
// Backward, with u = dy g: dx = r (u - x^ mean(u x^)), and a layer norm also
// subtracts mean(u); dg = sum of dy x^ over rows, db = sum of dy.
#include "model/layer.h"

namespace tessera::model {
namespace {

class Norm final : public Layer {
 public:
  explicit Norm(const ModelConfig& m)
      : width_(m.width), eps_(m.norm_eps), kind_(m.norm) {}

  std::vector<ModelParameter> parameters() const override {
    std::vector<ModelParameter> out = {{"weight", {width_}, 1, 0, {""}}};
    if (centred()) out.push_back({"bias", {width_}, 0, 0, {""}});
    return out;
  }

  Passed forward(const Site& at, const Values& parameters,
                 const Values& inputs) const override {
    Writer& w = at.w;
    const Value& x = inputs[0];
    const Value middle = centred() ? w.sub(x, means(w, x)) : x;
    const Value square = means(w, w.mul(middle, middle));
    const Value root = w.sqrt(w.add(square, w.real(eps_, x.dims())));
    const Value scale = w.div(w.real(1, x.dims()), root);
    const Value unit = w.mul(middle, scale);
    Value out = w.mul(unit, over_rows(w, parameters[0], x.dims()));
    if (centred()) out = w.add(out, over_rows(w, parameters[1], x.dims()));
    return {{out}, {unit, scale}};
  }

  Returned backward(const Site& at, const Values& parameters,
                    const Values& saved,
                    const Values& gradients) const override {
    Writer& w = at.w;
    const Value &unit = saved[0], &scale = saved[1], &dy = gradients[0];
    const Value u = w.mul(dy, over_rows(w, parameters[0], dy.dims()));
    Value rest = w.sub(u, w.mul(unit, means(w, w.mul(u, unit))));
    if (centred()) rest = w.sub(rest, means(w, u));
    Returned out = {{w.mul(scale, rest)}, {w.reduce_sum(w.mul(dy, unit), {0})}};
    if (centred()) out.parameters.push_back(w.reduce_sum(dy, {0}));
    return out;
  }

  std::optional<Flops> flops(int64_t) const override { return Flops{}; }

 private:
  bool centred() const { return kind_ == NormKind::layer; }

  static Value over_rows(Writer& w, const Value& a, const Dims& dims) {
    return w.broadcast(a, dims, {1});
  }
  // The mean of each row, broadcast over the row.
  Value means(Writer& w, const Value& x) const {
    const Value sums = w.reduce_sum(x, {1});
    const Value n = w.real(static_cast<double>(width_), sums.dims());
    return w.broadcast(w.div(sums, n), x.dims(), {0});
  }

  int64_t width_;
  double eps_;
  NormKind kind_;
};

}  // namespace

LayerPtr make_norm(const Needs& needs) {
  return std::make_unique<Norm>(needs.model);
}

}  // namespace tessera::model
