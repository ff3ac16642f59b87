// model/linear.cc: y = x W^T, with W [to, from] as in checkpoints.
#include <utility>

#include "model/layer.h"

namespace tessera::model {

Value Site::times(const Value& a, const Value& weights) const {
  return w.dot(w.convert(a, products), w.convert(weights, products),
               {{}, {}, {1}, {1}});
}

namespace {

class Linear final : public Layer {
 public:
  Linear(int64_t from, int64_t to, double deviation,
         std::vector<std::string> axes, std::vector<int64_t> sections)
      : from_(from),
        to_(to),
        deviation_(deviation),
        axes_(std::move(axes)),
        sections_(std::move(sections)) {}

  std::vector<ModelParameter> parameters() const override {
    return {{"weight", {to_, from_}, 0, deviation_, axes_, sections_}};
  }

  Passed forward(const Site& at, const Values& parameters,
                 const Values& inputs) const override {
    return {{at.times(inputs[0], parameters[0])}, {inputs[0]}};
  }

  // dx = dy W, dW = dy^T x
  Returned backward(const Site& at, const Values& parameters,
                    const Values& saved,
                    const Values& gradients) const override {
    Writer& w = at.w;
    const Value dy = w.convert(gradients[0], at.products);
    const Value weights = w.convert(parameters[0], at.products);
    const Value x = w.convert(saved[0], at.products);
    return {{w.dot(dy, weights, {{}, {}, {1}, {0}})},
            {w.dot(dy, x, {{}, {}, {0}, {0}})}};
  }

  std::optional<Flops> flops(int64_t rows) const override {
    const double one = 2.0 * static_cast<double>(rows) *
                       static_cast<double>(from_) * static_cast<double>(to_);
    return Flops{one, 2 * one};
  }

 private:
  int64_t from_, to_;
  double deviation_;
  std::vector<std::string> axes_;
  std::vector<int64_t> sections_;
};

}  // namespace

LayerPtr make_linear(int64_t from, int64_t to, double deviation,
                     std::vector<std::string> axes,
                     std::vector<int64_t> sections) {
  return std::make_unique<Linear>(from, to, deviation, std::move(axes),
                                  std::move(sections));
}

}  // namespace tessera::model
