// model/mlp.cc: the activation between fc1 and fc2, and the slot that fuses
// norm, fc1, activation and fc2.
//
// With s the logistic function: silu(x) = x s(x), silu' = s + x s (1 - s).
// gelu(x) = x s(z), z = 2 sqrt(2 / pi) (x + 0.044715 x^3), which is the form
// with tanh; gelu' = s + x s (1 - s) z'.
#include <cmath>
#include <utility>

#include "model/layer.h"

namespace tessera::model {
namespace {

constexpr double kCubic = 0.044715;

struct Bent {
  Value value, slope;
};
Bent bend(Writer& w, MlpKind kind, const Value& x, bool with_slope) {
  const Dims& dims = x.dims();
  const auto number = [&](double v) { return w.real(v, dims); };
  Value inner = x, inner_slope;
  if (kind != MlpKind::swiglu) {
    const double c = 2 * std::sqrt(2 / std::acos(-1.0));
    const Value square = w.mul(x, x);
    const Value cubic = w.mul(number(kCubic), square);
    inner = w.mul(w.mul(number(c), x), w.add(number(1), cubic));
    if (with_slope) {
      inner_slope = w.mul(number(c), w.add(number(1), w.mul(number(3), cubic)));
    }
  }
  const Value s = w.logistic(inner);
  Bent out;
  out.value = w.mul(x, s);
  if (!with_slope) return out;
  Value more = w.mul(out.value, w.sub(number(1), s));
  if (kind != MlpKind::swiglu) more = w.mul(more, inner_slope);
  out.slope = w.add(s, more);
  return out;
}

bool is_gated(MlpKind kind) { return kind != MlpKind::gelu; }

}  // namespace

Passed activate(const Site& at, const ModelConfig& m, const Value& x) {
  Writer& w = at.w;
  if (!is_gated(m.mlp)) return {{bend(w, m.mlp, x, false).value}, {x}};
  const Value gate = w.part(x, 1, 0, m.mlp_width);
  const Value up = w.part(x, 1, m.mlp_width, 2 * m.mlp_width);
  return {{w.mul(bend(w, m.mlp, gate, false).value, up)}, {x}};
}

Value activate_backward(const Site& at, const ModelConfig& m,
                        const Values& saved, const Value& gradient) {
  Writer& w = at.w;
  const Value& x = saved[0];
  if (!is_gated(m.mlp)) {
    return w.mul(gradient, bend(w, m.mlp, x, true).slope);
  }
  const Value gate = w.part(x, 1, 0, m.mlp_width);
  const Value up = w.part(x, 1, m.mlp_width, 2 * m.mlp_width);
  const Bent bent = bend(w, m.mlp, gate, true);
  const Value through = w.mul(gradient, up);
  const Values parts = {w.mul(through, bent.slope),
                        w.mul(gradient, bent.value)};
  return w.join(parts, 1);
}

namespace {

class LayernormMlp final : public Layer {
 public:
  LayernormMlp(const ModelConfig& model, LayerPtr norm, LayerPtr fc1,
               LayerPtr fc2)
      : model_(model),
        norm_(std::move(norm)),
        fc1_(std::move(fc1)),
        fc2_(std::move(fc2)),
        norms_(norm_->parameters().size()) {}

  std::vector<ModelParameter> parameters() const override {
    std::vector<ModelParameter> out;
    const auto add = [&](const Layer& layer, const std::string& name) {
      for (ModelParameter p : layer.parameters()) {
        p.name = name + "." + p.name;
        out.push_back(std::move(p));
      }
    };
    add(*norm_, "norm");
    add(*fc1_, "linear_fc1");
    add(*fc2_, "linear_fc2");
    return out;
  }

  Passed forward(const Site& at, const Values& parameters,
                 const Values& inputs) const override {
    const Run ran = run(at, parameters, inputs[0]);
    const Split p = split(parameters);
    return {fc2_->forward(at, p.fc2, ran.hidden.out).out, inputs};
  }

  Values kept(const Site&, const Values&, const Values& inputs) const override {
    return inputs;
  }

  // Saves only its input; the intermediate values are recomputed here.
  Returned backward(const Site& at, const Values& parameters,
                    const Values& saved,
                    const Values& gradients) const override {
    const Value x = at.w.barrier(saved).front();
    const Run ran = run(at, parameters, x);
    const Split p = split(parameters);
    const Values saved2 = fc2_->kept(at, p.fc2, ran.hidden.out);
    const Returned fc2 = fc2_->backward(at, p.fc2, saved2, gradients);
    const Value dh =
        activate_backward(at, model_, ran.hidden.saved, fc2.inputs[0]);
    const Returned fc1 = fc1_->backward(at, p.fc1, ran.fc1.saved, {dh});
    Returned out = norm_->backward(at, p.norm, ran.norm.saved, fc1.inputs);
    for (const Returned* r : {&fc1, &fc2}) {
      append(out.parameters, r->parameters);
    }
    return out;
  }

  std::optional<Flops> flops(int64_t rows) const override {
    const Flops a = *fc1_->flops(rows), b = *fc2_->flops(rows);
    return Flops{a.forward + b.forward, a.forward + a.back + b.back};
  }

 private:
  struct Split {
    Values norm, fc1, fc2;
  };
  Split split(const Values& all) const {
    const auto at = all.begin() + static_cast<int64_t>(norms_);
    return {{all.begin(), at}, {at, at + 1}, {at + 1, all.end()}};
  }

  struct Run {
    Passed norm, fc1, hidden;
  };
  Run run(const Site& at, const Values& parameters, const Value& x) const {
    const Split p = split(parameters);
    Run out;
    out.norm = norm_->forward(at, p.norm, {x});
    out.fc1 = fc1_->forward(at, p.fc1, out.norm.out);
    out.hidden = activate(at, model_, out.fc1.out[0]);
    return out;
  }

  ModelConfig model_;
  LayerPtr norm_, fc1_, fc2_;
  size_t norms_;
};

}  // namespace

LayerPtr make_layernorm_mlp(const Needs& needs, LayerPtr norm, LayerPtr fc1,
                            LayerPtr fc2) {
  return std::make_unique<LayernormMlp>(needs.model, std::move(norm),
                                        std::move(fc1), std::move(fc2));
}

}  // namespace tessera::model
