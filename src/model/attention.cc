// model/attention.cc: the attention slot, by the programs of the xla lane: over
// the plan's worklist, or over every pair.
#include <algorithm>
#include <utility>

#include "model/layer.h"
#include "model/padding.h"

namespace tessera::model {

std::vector<xla::Argument> integers_of(const xla::Shape& shape) {
  std::vector<xla::Argument> out = xla::arguments_of(shape);
  std::erase_if(out, [](const xla::Argument& a) {
    return a.type.element != Element::i32;
  });
  return out;
}

namespace {

// The integer arguments of a CPU call and of its router, if it has one. A name
// that both have stands for the same array.
std::vector<xla::Argument> given_integers(const AttentionPlace& place) {
  std::vector<xla::Argument> out = place.cpu->integers;
  if (place.route.top == 0) return out;
  std::erase_if(out,
                [](const xla::Argument& a) { return a.name == kPicksName; });
  for (xla::Argument& a : integers_of(place.shape)) {
    if (std::ranges::find(out, a.name, &xla::Argument::name) == out.end()) {
      out.push_back(std::move(a));
    }
  }
  return out;
}

class Attention final : public Layer {
 public:
  Attention(const AttentionPlace& place, XlaMethod method) : place_(place) {
    place_.shape.method = method;
  }

  std::vector<ModelParameter> parameters() const override { return {}; }

  // q, k, v [batch, heads, tokens, head_dim]; out is shaped like q. Saves what
  // the backward program reads, with its padding.
  Passed forward(const Site& at, const Values&,
                 const Values& inputs) const override {
    Writer& w = at.w;
    const xla::Shape& s = place_.shape;
    const char* names[] = {"q", "k", "v"};
    bind_integers(w, false);
    Values saved;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Value cast = w.convert(inputs[i], s.element);
      saved.push_back(grown(w, cast, padded(s, i == 0)));
      w.bind(names[i], saved.back());
    }
    Values made = xla::write_forward(w, s);
    saved.push_back(made[0]);
    saved.push_back(made[1]);
    const Value out = w.convert(made[0], w.wide());
    return {{shrunk(w, out, inputs[0].dims()), made[2]}, std::move(saved)};
  }

  Returned backward(const Site& at, const Values&, const Values& saved,
                    const Values& gradients) const override {
    Writer& w = at.w;
    xla::Shape s = place_.shape;
    s.backward = true;
    bind_integers(w, true);
    const char* names[] = {"q", "k", "v", "out", "lse"};
    for (size_t i = 0; i < saved.size(); ++i) w.bind(names[i], saved[i]);
    const Dims& given = gradients[0].dims();
    const Value cast = w.convert(gradients[0], s.element);
    w.bind("dout", grown(w, cast, padded(s, true)));
    const Values made = xla::write_backward(w, s);
    Returned out;
    for (size_t i = 0; i < 3; ++i) {
      Dims dims = given;
      if (i > 0) dims[1] = s.kv_heads;
      if (i > 0 && place_.keys > 0) dims[2] = place_.keys;
      const Value wide = w.convert(made[i], w.wide());
      out.inputs.push_back(shrunk(w, wide, dims));
    }
    return out;
  }

  // Without a worklist every pair is visited; else the batch decides, and the
  // program counts its tiles.
  std::optional<Flops> flops(int64_t) const override {
    const xla::Shape& s = place_.shape;
    if (s.method != XlaMethod::dense) return {};
    const auto pairs = static_cast<double>(s.batch * s.heads) *
                       static_cast<double>(s.q_len) *
                       static_cast<double>(s.kv_len);
    const double product = 2 * pairs * static_cast<double>(s.head_dim);
    return Flops{2 * product, 5 * product};
  }

 private:
  static Dims padded(const xla::Shape& s, bool queries) {
    return {s.batch, queries ? s.heads : s.kv_heads,
            queries ? s.q_len : s.kv_len, s.head_dim};
  }

  void bind_integers(Writer& w, bool backward) const {
    xla::Shape s = place_.shape;
    s.backward = backward;
    for (const xla::Argument& a : integers_of(s)) {
      w.bind(a.name, w.argument(place_.prefix + a.name));
    }
  }

  AttentionPlace place_;
};

}  // namespace

std::vector<xla::Argument> integers_of(const AttentionPlace& place) {
  if (place.kernels) return kernel_integers(place);
  if (place.shard_kernels) return exchanged_kernel_integers(place);
  std::vector<xla::Argument> out = place.frame ? exchanged_integers(place)
                                   : place.cpu ? given_integers(place)
                                               : integers_of(place.shape);
  for (xla::Argument& a : out) a.name = place.prefix + a.name;
  return out;
}

LayerPtr make_attention(const AttentionPlace& place, XlaMethod method) {
  return std::make_unique<Attention>(place, method);
}

}  // namespace tessera::model
