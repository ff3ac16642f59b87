// model/shared_linear.cc: a linear slot whose weights are divided among devices
// with the same rows. Each device computes some of the outputs from all inputs,
// or what some of the inputs add to all outputs.
#include <utility>

#include "model/layer.h"
#include "model/mesh.h"

namespace tessera::model {
namespace {

class SharedLinear final : public Layer {
 public:
  SharedLinear(Writer::Groups partners, LayerPtr own)
      : partners_(std::move(partners)),
        own_(std::move(own)),
        splits_outputs_(!own_->parameters().front().axes.front().empty()) {}

  std::vector<ModelParameter> parameters() const override {
    return own_->parameters();
  }

  Passed forward(const Site& at, const Values& parameters,
                 const Values& inputs) const override {
    Passed out = own_->forward(at, parameters, inputs);
    if (!splits_outputs_) out.out = sum_over_devices(at.w, partners_, out.out);
    return out;
  }

  Values kept(const Site& at, const Values& parameters,
              const Values& inputs) const override {
    return own_->kept(at, parameters, inputs);
  }

  // If outputs are divided, an input's gradient is the sum over the devices.
  Returned backward(const Site& at, const Values& parameters,
                    const Values& saved,
                    const Values& gradients) const override {
    Returned out = own_->backward(at, parameters, saved, gradients);
    if (splits_outputs_) {
      out.inputs = sum_over_devices(at.w, partners_, out.inputs);
    }
    return out;
  }

  std::optional<Flops> flops(int64_t rows) const override {
    return own_->flops(rows);
  }

 private:
  Writer::Groups partners_;
  LayerPtr own_;
  bool splits_outputs_;
};

}  // namespace

LayerPtr make_shared_linear(const Writer::Groups& partners, LayerPtr own) {
  return std::make_unique<SharedLinear>(partners, std::move(own));
}

}  // namespace tessera::model
