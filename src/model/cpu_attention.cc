// model/cpu_attention.cc: the attention slot by our CPU kernels, which the
// program calls: one call a direction, with the batch's plan and facts as
// arguments of the step.
#include <fmt/format.h>

#include <utility>

#include "lanes/cpu/ffi_handlers.h"
#include "model/layer.h"

namespace tessera::model {
namespace {

// All arrays are row-major.
std::string layouts_of(const Values& values) {
  std::string out;
  for (const Value& v : values) {
    const size_t rank = v.dims().size();
    std::string order;
    for (size_t i = rank; i-- > 0;) {
      order += fmt::format("{}{}", order.empty() ? "" : ", ", i);
    }
    out += fmt::format("{}dense<[{}]> : tensor<{}xindex>",
                       out.empty() ? "" : ", ", order, rank);
  }
  return out;
}

class CpuAttention final : public Layer {
 public:
  explicit CpuAttention(const AttentionPlace& place) : place_(place) {}

  std::vector<ModelParameter> parameters() const override { return {}; }

  Passed forward(const Site& at, const Values&,
                 const Values& inputs) const override {
    Writer& w = at.w;
    Values taken;
    for (const Value& input : inputs) {
      taken.push_back(w.convert(input, place_.cpu->element));
    }
    const xla::Type out = taken[0].type;
    const xla::Type lse = {Element::f32,
                           {out.dims[0], out.dims[1], out.dims[2]}};
    const Values made =
        call(w, cpu::kForwardTarget, taken, {out, lse, {Element::i32, {1}}});
    Values saved = taken;
    saved.insert(saved.end(), {made[0], made[1]});
    return {{w.convert(made[0], w.wide()), w.reshape(made[2], {})},
            std::move(saved)};
  }

  // Saved are q, k, v, the output and the log-sum-exp. The log-sum-exp has no
  // gradient, so an empty array is passed for it.
  Returned backward(const Site& at, const Values&, const Values& saved,
                    const Values& gradients) const override {
    Writer& w = at.w;
    Values taken = saved;
    taken.push_back(w.convert(gradients[0], place_.cpu->element));
    taken.push_back(w.real(0, {0}, Element::f32));
    Returned out;
    for (const Value& made :
         call(w, cpu::kBackwardTarget, taken,
              {saved[0].type, saved[1].type, saved[2].type})) {
      out.inputs.push_back(w.convert(made, w.wide()));
    }
    return out;
  }

  // Nothing: flops depend on the batch's tiles, which the kernels count.
  std::optional<Flops> flops(int64_t) const override { return {}; }

 private:
  // A place without a call supports parameters() only.
  Values call(Writer& w, const char* target, Values operands,
              const std::vector<xla::Type>& results) const {
    const CpuCall& c = *place_.cpu;
    for (const xla::Argument& a : c.integers) {
      operands.push_back(w.argument(place_.prefix + a.name));
    }
    Values made;
    for (const xla::Type& type : results) made.push_back({"", type});
    const std::string attributes = fmt::format(
        "api_version = 4 : i32, backend_config = {{batch = \"{}\", bshd = "
        "false, has_scale = true, scale = {:.17e} : f64, sinks = false, "
        "softcap = {:.17e} : f64}}, operand_layouts = [{}], result_layouts = "
        "[{}]",
        c.text, c.shape.scale_or_default(), c.shape.softcap,
        layouts_of(operands), layouts_of(made));
    return w.call(target, target, operands, attributes, results);
  }

  AttentionPlace place_;
};

}  // namespace

LayerPtr make_cpu_attention(const AttentionPlace& place) {
  return std::make_unique<CpuAttention>(place);
}

}  // namespace tessera::model
