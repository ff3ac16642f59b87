// model/shared_attention.cc: the attention slot where devices share rows: each
// device has a part of the queries, and gathers the keys and values of all.
#include <utility>

#include "model/layer.h"
#include "model/mesh.h"

namespace tessera::model {
namespace {

constexpr int64_t kTokens = 2;  // the dimension of [batch, heads, tokens, dim]

class SharedAttention final : public Layer {
 public:
  SharedAttention(const AttentionPlace& place, LayerPtr own)
      : sharers_(place.sharers), own_(std::move(own)) {}

  std::vector<ModelParameter> parameters() const override {
    return own_->parameters();
  }

  Passed forward(const Site& at, const Values& parameters,
                 const Values& inputs) const override {
    Values all = {inputs[0]};
    for (const size_t i : {1, 2}) {
      // Attention would round it; rounding first sends fewer bytes.
      const Value part = at.w.convert(inputs[i], at.products);
      all.push_back(at.w.gather(part, kTokens, sharers_));
    }
    return own_->forward(at, parameters, all);
  }

  // The gradient of a key is the sum over the devices that share its row.
  Returned backward(const Site& at, const Values& parameters,
                    const Values& saved,
                    const Values& gradients) const override {
    Returned out = own_->backward(at, parameters, saved, gradients);
    for (const size_t i : {1, 2}) {
      out.inputs[i] = sum_parts(at.w, out.inputs[i], kTokens, sharers_);
    }
    return out;
  }

  std::optional<Flops> flops(int64_t rows) const override {
    return own_->flops(rows);
  }

 private:
  Writer::Groups sharers_;
  LayerPtr own_;
};

}  // namespace

LayerPtr make_shared_attention(const AttentionPlace& place, LayerPtr own) {
  return std::make_unique<SharedAttention>(place, std::move(own));
}

}  // namespace tessera::model
