// model/block.cc: connects the slots of a decoder block.
#include "model/block.h"

#include <utility>

#include "lanes/xla/planned.h"

namespace tessera::model {
namespace {

constexpr const char* kNames[kParts] = {
    "norm1",      "linear_qkv",    "attention", "linear_proj",
    "post_norm1", "layernorm_mlp", "norm2",     "linear_fc1",
    "activation", "linear_fc2",    "post_norm2"};

constexpr size_t index(Part part) { return static_cast<size_t>(part); }

// Bytes of the arrays; a scalar counts 0.
int64_t bytes_in(const Values& values) {
  int64_t out = 0;
  for (const Value& v : values) {
    if (v.dims().empty()) continue;
    out += v.type.elements() * byte_width(xla::dtype_of(v.type.element));
  }
  return out;
}

SlotBytes bytes_in(const Values& inputs, const Values& parameters,
                   const Passed& passed) {
  return {bytes_in(inputs), bytes_in(parameters), bytes_in(passed.out),
          bytes_in(passed.saved)};
}

// Columns [begin, begin + heads dim) of rows, as [batch, heads, tokens, dim].
Value take_heads(Writer& w, const Stream& s, const Value& rows, int64_t begin,
                 int64_t heads, int64_t dim) {
  const Value columns = w.part(rows, 1, begin, begin + heads * dim);
  return w.transpose(w.reshape(columns, {s.batch, s.tokens, heads, dim}),
                     {0, 2, 1, 3});
}

Value as_rows(Writer& w, const Stream& s, const Value& heads) {
  const Dims& d = heads.dims();
  return w.reshape(w.transpose(heads, {0, 2, 1, 3}), {s.rows(), d[1] * d[3]});
}

// Rotates numbers i and i + dim / 2 of each head by their angle; `back` rotates
// by the negative angle.
Value turn(Writer& w, const Stream& s, const Value& x, bool back) {
  const int64_t half = x.dims()[3] / 2;
  const Value left = w.part(x, 3, 0, half);
  const Value right = w.part(x, 3, half, 2 * half);
  const Value cos = w.broadcast(s.cos, left.dims(), {0, 2, 3});
  Value sin = w.broadcast(s.sin, left.dims(), {0, 2, 3});
  if (back) sin = w.negate(sin);
  const Values parts = {w.sub(w.mul(left, cos), w.mul(right, sin)),
                        w.add(w.mul(right, cos), w.mul(left, sin))};
  return w.join(parts, 3);
}

}  // namespace

std::string_view to_string(Part part) { return kNames[index(part)]; }

Result<Block> Block::make(const LayerSpec& spec, const Needs& needs) {
  if (auto e = check_spec(spec); !e) return e.error();
  const ModelConfig& m = needs.model;
  Block out(m);
  std::vector<std::pair<Part, Slot>> parts = {
      {Part::norm1, Slot::norm},
      {Part::qkv, Slot::linear_qkv},
      {Part::attention, Slot::attention},
      {Part::proj, Slot::linear_proj}};
  if (m.fused_mlp) {
    parts.emplace_back(Part::mlp, Slot::layernorm_mlp);
  } else {
    parts.emplace_back(Part::norm2, Slot::norm);
    parts.emplace_back(Part::fc1, Slot::linear_fc1);
    parts.emplace_back(Part::fc2, Slot::linear_fc2);
  }
  if (m.post_norms) {
    parts.emplace_back(Part::post_norm1, Slot::norm);
    parts.emplace_back(Part::post_norm2, Slot::norm);
  }
  for (const auto& [part, slot] : parts) {
    auto layer = make_layer(spec, slot, needs);
    if (!layer) return layer.error();
    out.layers_[index(part)] = std::move(*layer);
  }
  return out;
}

std::vector<ModelParameter> Block::parameters() const {
  std::vector<ModelParameter> out;
  for (size_t i = 0; i < kParts; ++i) {
    if (!layers_[i]) continue;
    for (ModelParameter p : layers_[i]->parameters()) {
      // The fused and the separate MLP give their parameters the same names.
      const bool fused = i == index(Part::mlp);
      if (fused && p.name.starts_with("norm.")) p.name.replace(0, 4, "norm2");
      if (!fused) p.name = std::string(kNames[i]) + "." + p.name;
      out.push_back(std::move(p));
    }
  }
  return out;
}

std::array<Values, kParts> Block::split(const Values& parameters) const {
  std::array<Values, kParts> out;
  auto at = parameters.begin();
  for (size_t i = 0; i < kParts; ++i) {
    if (!layers_[i]) continue;
    const auto n = static_cast<int64_t>(layers_[i]->parameters().size());
    out[i].assign(at, at + n);
    at += n;
  }
  return out;
}

BlockPass Block::forward(const Site& at, const Stream& s,
                         const Values& parameters, const Value& x,
                         bool for_way_back) const {
  Writer& w = at.w;
  const std::array<Values, kParts> p = split(parameters);
  BlockPass out;
  const auto run = [&](Part part, const Values& inputs) {
    Passed passed = layer(part)->forward(at, p[index(part)], inputs);
    out.bytes[index(part)] = bytes_in(inputs, p[index(part)], passed);
    out.saved[index(part)] = std::move(passed.saved);
    return std::move(passed.out);
  };
  const auto add = [&](const Value& to, Values more, Part post) {
    if (layer(post)) more = run(post, more);
    return w.add(to, more[0]);
  };
  const Value rows = run(Part::qkv, run(Part::norm1, {x}))[0];
  const int64_t d = model_.head_dim;
  const int64_t heads = model_.heads, kv_heads = model_.kv_heads;
  const Value q = take_heads(w, s, rows, 0, heads, d);
  const Value k = take_heads(w, s, rows, heads * d, kv_heads, d);
  const Value v = take_heads(w, s, rows, (heads + kv_heads) * d, kv_heads, d);
  const Values attended =
      run(Part::attention, {turn(w, s, q, false), turn(w, s, k, false), v});
  out.tiles = attended[1];
  const Value x1 =
      add(x, run(Part::proj, {as_rows(w, s, attended[0])}), Part::post_norm1);
  const auto finish = [&](Part part, const Values& inputs) {
    if (for_way_back && !layer(Part::post_norm2)) {
      out.saved[index(part)] = layer(part)->kept(at, p[index(part)], inputs);
    } else {
      out.out = add(x1, run(part, inputs), Part::post_norm2);
    }
  };
  if (layer(Part::mlp)) {
    finish(Part::mlp, {x1});
    return out;
  }
  const Values wide = run(Part::fc1, run(Part::norm2, {x1}));
  Passed bent = activate(at, model_, wide[0]);
  out.bytes[index(Part::activation)] = bytes_in(wide, {}, bent);
  out.saved[index(Part::activation)] = std::move(bent.saved);
  finish(Part::fc2, bent.out);
  return out;
}

Returned Block::backward(const Site& at, const Stream& s,
                         const Values& parameters, const BlockPass& pass,
                         const Value& gradient) const {
  Writer& w = at.w;
  const std::array<Values, kParts> p = split(parameters);
  std::array<Values, kParts> found;
  const auto back = [&](Part part, const Values& gradients) {
    Returned r = layer(part)->backward(at, p[index(part)],
                                       pass.saved[index(part)], gradients);
    found[index(part)] = std::move(r.parameters);
    return std::move(r.inputs);
  };
  Values more = {gradient};
  if (layer(Part::post_norm2)) more = back(Part::post_norm2, more);
  if (layer(Part::mlp)) {
    more = back(Part::mlp, more);
  } else {
    more = back(Part::fc2, more);
    more = {activate_backward(at, model_, pass.saved[index(Part::activation)],
                              more[0])};
    more = back(Part::norm2, back(Part::fc1, more));
  }
  const Value dx1 = w.add(gradient, more[0]);
  more = {dx1};
  if (layer(Part::post_norm1)) more = back(Part::post_norm1, more);
  more = back(Part::proj, more);
  const Values heads =
      back(Part::attention,
           {take_heads(w, s, more[0], 0, model_.heads, model_.head_dim)});
  const Values rows = {as_rows(w, s, turn(w, s, heads[0], true)),
                       as_rows(w, s, turn(w, s, heads[1], true)),
                       as_rows(w, s, heads[2])};
  more = back(Part::norm1, back(Part::qkv, {w.join(rows, 1)}));
  Returned out;
  out.inputs = {w.add(dx1, more[0])};
  for (Values& each : found) {
    for (Value& v : each) out.parameters.push_back(std::move(v));
  }
  return out;
}

std::optional<Flops> Block::flops(Part part, int64_t rows) const {
  return layer(part) ? layer(part)->flops(rows) : Flops{};
}

}  // namespace tessera::model
