// model/exchanged_kernels.cc: the attention slot by TPU kernels where devices
// share rows and tokens lie as a balance says: several calls of the kernel,
// some of them while tiles travel, as in the mosaic lane on a mesh.
#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "lanes/mosaic/shape.h"
#include "model/layer.h"

namespace tessera::model {
namespace {

constexpr int64_t kTokens = 2;  // the dimension of [batch, heads, tokens, dim]

// Integer arguments of the kernel's calls, without those of the exchange.
std::vector<xla::Argument> own_integers(const mosaic::ShardKernel& kernel) {
  std::vector<xla::Argument> out;
  const size_t travel = xla::exchange_arrays(kernel.frame).size();
  const std::vector<xla::ShardArray> all = arrays_of(kernel).arguments;
  for (size_t i = travel; i < all.size(); ++i) {
    if (all[i].is_own) out.push_back(xla::of_device(all[i]));
  }
  return out;
}

class ExchangedKernels final : public Layer {
 public:
  explicit ExchangedKernels(const AttentionPlace& place) : place_(place) {}

  std::vector<ModelParameter> parameters() const override { return {}; }

  // q, k, v [1, heads, own tokens, head_dim]; out is shaped like q. Saves what
  // the backward kernels read: own q, k and v, the received parts of each, then
  // out and log-sum-exp of all queries, own and received.
  Passed forward(const Site& at, const Values&,
                 const Values& inputs) const override {
    Writer& w = at.w;
    bind_integers(w, false);
    Values saved;
    for (size_t i = 0; i < kInputs.size(); ++i) {
      saved.push_back(w.convert(inputs[i], kernels().element));
      w.bind(std::string(kInputs[i]), saved.back());
    }
    const auto awaited = xla::send_arrays(w, frame(), kInputs);
    const std::vector<xla::Made> made = call(w, false, awaited);
    for (const std::string_view array : kInputs) {
      for (Value& part : xla::came_parts(w, frame(), array)) {
        saved.push_back(std::move(part));
      }
    }
    const Value out = of_queries(w, made[0].own);
    saved.push_back(out);
    saved.push_back(made[1].own);
    constexpr std::array<std::string_view, 1> kOut = {"out"};
    const Values home = xla::bring_home(w, frame(), kOut, {{out}});
    return {{w.convert(home[0], w.wide()), w.integer(0)}, std::move(saved)};
  }

  Returned backward(const Site& at, const Values&, const Values& saved,
                    const Values& gradients) const override {
    Writer& w = at.w;
    bind_integers(w, true);
    auto next = saved.begin();
    for (const std::string_view array : kInputs) {
      w.bind(std::string(array), *next++);
    }
    for (const std::string_view array : kInputs) {
      const size_t parts = xla::came_tokens(frame(), array).size();
      xla::bind_came_parts(w, array, std::span(next, parts));
      next += static_cast<std::ptrdiff_t>(parts);
    }
    bind_parts(w, "out", *next++);
    bind_parts(w, "lse", *next);
    constexpr std::array<std::string_view, 1> kDout = {"dout"};
    w.bind("dout", w.convert(gradients[0], kernels().element));
    const auto awaited = xla::send_arrays(w, frame(), kDout);
    std::vector<xla::Made> made = call(w, true, awaited);
    made[0].own = of_queries(w, made[0].own);
    for (const size_t i : {1, 2}) made[i].own = of_keys(w, made[i].own);
    constexpr std::array<std::string_view, 3> kGiven = {"dq", "dk", "dv"};
    Returned out;
    for (const Value& v : xla::bring_home(w, frame(), kGiven, made)) {
      out.inputs.push_back(w.convert(v, w.wide()));
    }
    return out;
  }

  // Nothing: flops depend on the batch, as the kernel's predicted cycles do.
  std::optional<Flops> flops(int64_t) const override { return {}; }

 private:
  static constexpr std::array<std::string_view, 3> kInputs = {"q", "k", "v"};

  std::vector<xla::Made> call(Writer& w, bool backward,
                              const std::vector<xla::Awaited>& awaited) const {
    return mosaic::write_calls(w, kernels().of(backward), awaited,
                               kernel_label(place_, backward), kernels().call);
  }

  // Kernels write nothing where there is no query, or no key. What is in that
  // memory must become 0: 0 x NaN is NaN in gradients of parameters.
  static Value of_queries(Writer& w, const Value& x) {
    return where(w, "q_ids", mosaic::kNotThere, x);
  }
  static Value of_keys(Writer& w, const Value& x) {
    return where(w, "kv_ids", mosaic::kNoKey, x);
  }
  // Keeps x where the token's id is above `below`; 0 elsewhere.
  static Value where(Writer& w, std::string_view ids, int32_t below,
                     const Value& x) {
    const Value& all = w.argument(ids);
    const int64_t tokens = x.dims()[kTokens];
    const Value own =
        w.part(w.reshape(all, {all.type.elements()}), 0, 0, tokens);
    const Value there =
        w.compare(xla::Compare::greater, own, w.integer(below, {tokens}));
    return w.select(w.broadcast(there, x.dims(), {kTokens}), x,
                    w.real(0, x.dims(), x.type.element));
  }

  // Binds an array of all queries as the own part and the received parts.
  void bind_parts(Writer& w, const char* array, const Value& all) const {
    const xla::Exchange& e = frame().rows;
    int64_t at = e.own * e.tokens;
    w.bind(array, w.part(all, kTokens, 0, at));
    Values came;
    for (const int64_t tokens : e.came_tokens()) {
      came.push_back(w.part(all, kTokens, at, at + tokens));
      at += tokens;
    }
    xla::bind_came_parts(w, array, came);
  }

  void bind_integers(Writer& w, bool backward) const {
    for (const xla::Argument& a : exchange_integers(frame())) {
      w.bind(a.name, w.argument(place_.prefix + a.name));
    }
    for (const xla::Argument& a : own_integers(kernels().of(backward))) {
      w.bind(a.name, w.argument(kernel_prefix(place_, backward) + a.name));
    }
  }

  const xla::ShardFrame& frame() const { return *place_.frame; }
  // A place without kernels supports parameters() only.
  const ShardKernelPair& kernels() const { return *place_.shard_kernels; }

  AttentionPlace place_;
};

}  // namespace

std::vector<xla::Argument> exchanged_kernel_integers(
    const AttentionPlace& place) {
  std::vector<xla::Argument> out = exchange_integers(*place.frame);
  for (xla::Argument& a : out) a.name = place.prefix + a.name;
  for (const bool backward : {false, true}) {
    for (xla::Argument& a : own_integers(place.shard_kernels->of(backward))) {
      a.name = kernel_prefix(place, backward) + a.name;
      out.push_back(std::move(a));
    }
  }
  return out;
}

LayerPtr make_exchanged_kernels(const AttentionPlace& place) {
  return std::make_unique<ExchangedKernels>(place);
}

}  // namespace tessera::model
