// model/exchanged_attention.cc: the attention slot where devices share rows and
// tokens lie as a balance says. A device receives the tiles of keys and values
// that its queries need, and their gradients are sent back. If attention of
// some queries is computed on another device, the queries travel too.
#include <utility>

#include "model/layer.h"

namespace tessera::model {
namespace {

constexpr int64_t kTokens = 2;  // the dimension of [batch, heads, tokens, dim]

class ExchangedAttention final : public Layer {
 public:
  explicit ExchangedAttention(const AttentionPlace& place) : place_(place) {}

  std::vector<ModelParameter> parameters() const override { return {}; }

  // q, k, v [1, heads, own tokens, head_dim]; out is shaped like q. Saves what
  // the backward program reads, received tiles included: no key travels twice.
  Passed forward(const Site& at, const Values&,
                 const Values& inputs) const override {
    Writer& w = at.w;
    const xla::Shape& s = place_.shape;
    bind_integers(w);
    Values cast;
    for (const Value& v : inputs) cast.push_back(w.convert(v, s.element));
    const Values queries = with_those_that_come(w, rows(), {cast[0]});
    const Values keys = with_those_that_come(w, columns(), {cast[1], cast[2]});
    Values saved = {queries[0], keys[0], keys[1]};
    const char* names[] = {"q", "k", "v"};
    for (size_t i = 0; i < saved.size(); ++i) w.bind(names[i], saved[i]);
    const Values made = xla::write_forward(w, s);
    saved.push_back(made[0]);
    saved.push_back(made[1]);
    const Values home =
        xla::return_tiles(w, rows(), {{made[0]}}, xla::Homecoming::in_place);
    return {{w.convert(home[0], w.wide()), made[2]}, std::move(saved)};
  }

  Returned backward(const Site& at, const Values&, const Values& saved,
                    const Values& gradients) const override {
    Writer& w = at.w;
    xla::Shape s = place_.shape;
    s.backward = true;
    bind_integers(w);
    const char* names[] = {"q", "k", "v", "out", "lse"};
    for (size_t i = 0; i < saved.size(); ++i) w.bind(names[i], saved[i]);
    const Value cast = w.convert(gradients[0], s.element);
    w.bind("dout", with_those_that_come(w, rows(), {cast}).front());
    const Values made = xla::write_backward(w, s);
    Values home =
        xla::return_tiles(w, rows(), {{made[0]}}, xla::Homecoming::in_place);
    for (Value& v : xla::return_tiles(w, columns(), {{made[1]}, {made[2]}},
                                      xla::Homecoming::added)) {
      home.push_back(std::move(v));
    }
    Returned out;
    for (const Value& v : home) out.inputs.push_back(w.convert(v, w.wide()));
    return out;
  }

  // Nothing: flops depend on the batch's tiles, which the program counts.
  std::optional<Flops> flops(int64_t) const override { return {}; }

 private:
  const xla::Exchange& rows() const { return place_.frame->rows; }
  const xla::Exchange& columns() const { return place_.frame->columns; }

  // The device's own tiles, followed by those that it receives.
  static Values with_those_that_come(Writer& w, const xla::Exchange& e,
                                     const Values& own) {
    if (e.max_received() == 0) return own;
    Values out = own;
    for (const xla::Coming& coming : xla::send_tiles(w, e, own)) {
      const std::vector<Values> came = xla::receive_tiles(w, e, coming);
      for (size_t p = 0; p < came.size(); ++p) {
        Value& all = out[coming.parts[p].array];
        Values parts = {all};
        parts.insert(parts.end(), came[p].begin(), came[p].end());
        all = w.join(parts, kTokens);
      }
    }
    return out;
  }

  void bind_integers(Writer& w) const {
    for (const xla::Argument& a : exchanged_integers(place_)) {
      w.bind(a.name, w.argument(place_.prefix + a.name));
    }
  }

  AttentionPlace place_;
};

}  // namespace

std::vector<xla::Argument> exchange_integers(const xla::ShardFrame& frame) {
  std::vector<xla::Argument> out;
  for (const xla::ShardArray& a : xla::exchange_arrays(frame)) {
    out.push_back(xla::of_device(a));
  }
  return out;
}

std::vector<xla::Argument> exchanged_integers(const AttentionPlace& place) {
  std::vector<xla::Argument> out = exchange_integers(*place.frame);
  for (xla::Argument& a : integers_of(place.shape)) out.push_back(std::move(a));
  return out;
}

LayerPtr make_exchanged_attention(const AttentionPlace& place) {
  return std::make_unique<ExchangedAttention>(place);
}

}  // namespace tessera::model
