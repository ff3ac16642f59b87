// model/kernel_attention.cc: the attention slot by the TPU kernels of the
// mosaic lane: one call per direction; the worklist, ids and bounds are
// arguments of the step.
#include <fmt/format.h>

#include <limits>
#include <map>
#include <string_view>

#include "model/layer.h"
#include "model/padding.h"

namespace tessera::model {
namespace {

class KernelAttention final : public Layer {
 public:
  explicit KernelAttention(const AttentionPlace& place) : place_(place) {}

  std::vector<ModelParameter> parameters() const override { return {}; }

  // Saves what the backward kernel reads, cut to the batch's own rows: the
  // forward kernel does not write the padding behind them.
  Passed forward(const Site& at, const Values&,
                 const Values& inputs) const override {
    Writer& w = at.w;
    const Values qkv = {w.convert(inputs[0], pair().element),
                        w.convert(inputs[1], pair().element),
                        w.convert(inputs[2], pair().element)};
    const Values made =
        call(w, false, {{"q", qkv[0]}, {"k", qkv[1]}, {"v", qkv[2]}});
    const Dims& dims = inputs[0].dims();
    const Value out = shrunk(w, made[0], dims);
    const Value lse = shrunk(w, made[1], {dims[0], dims[1], 1, dims[2]});
    return {{w.convert(out, w.wide()), w.integer(0)},
            {qkv[0], qkv[1], qkv[2], out, lse}};
  }

  Returned backward(const Site& at, const Values&, const Values& saved,
                    const Values& gradients) const override {
    Writer& w = at.w;
    const Value dout = w.convert(gradients[0], pair().element);
    const Values made = call(w, true,
                             {{"q", saved[0]},
                              {"k", saved[1]},
                              {"v", saved[2]},
                              {"out", saved[3]},
                              {"lse", saved[4]},
                              {"dout", dout}});
    Returned out;
    for (size_t i = 0; i < made.size(); ++i) {
      const Value wide = w.convert(made[i], w.wide());
      out.inputs.push_back(shrunk(w, wide, saved[i].dims()));
    }
    return out;
  }

  // Nothing: flops depend on the batch, as the kernel's predicted cycles do.
  std::optional<Flops> flops(int64_t) const override { return {}; }

 private:
  Values call(Writer& w, bool backward,
              const std::map<std::string_view, Value>& given) const {
    const mosaic::PlannedKernel& kernel = pair().of(backward);
    // The log-sum-exp of a padding query, which sees no key.
    constexpr double kNoQuery = -std::numeric_limits<double>::infinity();
    Values operands;
    for (const mosaic::Argument& a : mosaic::arrays_of(kernel).inputs) {
      const auto found = given.find(a.name);
      operands.push_back(
          found == given.end()
              ? w.argument(kernel_prefix(place_, backward) + a.name)
              : grown(w, found->second, a.type.shape,
                      a.name == "lse" ? kNoQuery : 0));
    }
    return pair().call(w, kernel, kernel_label(place_, backward), operands);
  }

  // A place without kernels supports parameters() only.
  const KernelPair& pair() const { return *place_.kernels; }

  AttentionPlace place_;
};

}  // namespace

std::string kernel_prefix(const AttentionPlace& place, bool backward) {
  return place.prefix + (backward ? "backward." : "forward.");
}

std::string kernel_label(const AttentionPlace& place, bool backward) {
  const std::string_view plan(place.prefix.data(), place.prefix.size() - 1);
  return fmt::format("{}_{}", backward ? "backward" : "forward", plan);
}

std::vector<xla::Argument> kernel_integers(const AttentionPlace& place) {
  std::vector<xla::Argument> out;
  for (const bool backward : {false, true}) {
    const mosaic::PlannedKernel& kernel = place.kernels->of(backward);
    for (const mosaic::Argument& a : mosaic::arrays_of(kernel).inputs) {
      if (a.type.element != mosaic::Element::i32) continue;
      out.push_back({kernel_prefix(place, backward) + a.name,
                     {Element::i32, a.type.shape}});
    }
  }
  return out;
}

LayerPtr make_kernel_attention(const AttentionPlace& place) {
  return std::make_unique<KernelAttention>(place);
}

}  // namespace tessera::model
