// model/program.cc: embedding, blocks, loss, and back.
#include "model/program.h"

#include <cmath>
#include <utility>

#include "model/loss.h"

namespace tessera::model {
namespace {

constexpr const char* kEmbedding = "embedding.weight";
constexpr const char* kHead = "head.weight";

std::string layer_name(int64_t layer, const std::string& name) {
  return "layers." + std::to_string(layer) + "." + name;
}

struct Written {
  Value loss, tiles;
  Values gradients;  // in the order of the parameters
};

class Step {
 public:
  Step(Writer& w, const StepShape& s) : w_(w), s_(s), at_{w, s.products} {}

  Result<Written> write(const Values& parameters, bool with_gradients);

 private:
  Value column(const char* name) {
    return w_.reshape(w_.argument(name), {s_.batch * s_.tokens});
  }
  // Rows of tokens that have an id in the column; 0 elsewhere.
  Value where_there(const std::string& name, const Value& rows) {
    const Value ids = column(name.c_str());
    const Value there =
        w_.compare(xla::Compare::not_equal, ids, w_.integer(0, ids.dims()));
    return w_.select(w_.broadcast(there, rows.dims(), {0}), rows,
                     w_.real(0, rows.dims()));
  }
  void angles();

  Writer& w_;
  const StepShape& s_;
  Site at_;
  Stream stream_;
};

// positions theta^(-2 i / dim), i below dim / 2.
void Step::angles() {
  const int64_t half = s_.model.head_dim / 2;
  std::vector<double> steps;
  steps.reserve(static_cast<size_t>(half));
  for (int64_t i = 0; i < half; ++i) {
    steps.push_back(
        std::pow(s_.model.rope_theta,
                 -static_cast<double>(i) / static_cast<double>(half)));
  }
  const Dims dims = {s_.batch, s_.tokens, half};
  const Value turns = w_.broadcast(w_.reals(steps), dims, {2});
  const Value positions = w_.convert(w_.argument("positions"), w_.wide());
  const Value angle = w_.mul(w_.broadcast(positions, dims, {0, 1}), turns);
  stream_ = {s_.batch, s_.tokens, w_.cos(angle), w_.sin(angle)};
}

Result<Written> Step::write(const Values& parameters, bool with_gradients) {
  const ModelConfig& m = s_.model;
  angles();
  auto norm = make_layer(s_.spec, Slot::norm, {m, s_.places.front()});
  if (!norm) return norm.error();
  std::vector<Block> blocks;
  for (int64_t i = 0; i < m.layers; ++i) {
    auto block = Block::make(s_.spec, {m, s_.place_of(i)});
    if (!block) return block.error();
    blocks.push_back(std::move(*block));
  }

  // Embedding, blocks, final norm, head.
  auto next = parameters.begin();
  const auto take = [&](size_t n) {
    Values out(next, next + static_cast<int64_t>(n));
    next += static_cast<int64_t>(n);
    return out;
  };
  const Value table = take(1)[0];
  const Values of_columns = take(m.columns.size());
  std::vector<Values> of_blocks;
  of_blocks.reserve(blocks.size());
  for (const Block& b : blocks)
    of_blocks.push_back(take(b.parameters().size()));
  const Values of_norm = take((*norm)->parameters().size());
  const Value head = m.tied_head ? table : take(1)[0];

  const Value ids = column("input_ids");
  Value x = w_.rows(table, ids);
  const Value scale = w_.real(m.embedding_scale, x.dims());
  if (m.embedding_scale != 1) x = w_.mul(x, scale);
  size_t at = 0;
  for (const auto& [name, size] : m.columns) {
    const Value more = w_.rows(of_columns[at++], column(name.c_str()));
    x = w_.add(x, where_there(name, more));
  }
  Values inputs;
  std::vector<BlockPass> passes;
  Value tiles = w_.integer(0);
  for (size_t i = 0; i < blocks.size(); ++i) {
    w_.comment("layer " + std::to_string(i));
    inputs.push_back(x);
    BlockPass pass = blocks[i].forward(at_, stream_, of_blocks[i], x);
    x = pass.out;
    tiles = w_.add(tiles, pass.tiles);
    if (s_.recompute) pass = {};
    passes.push_back(std::move(pass));
  }
  const Passed normed = (*norm)->forward(at_, of_norm, {x});
  w_.comment("loss");
  const Loss loss =
      write_loss(at_, m, normed.out[0], head, column("target_ids"),
                 column("loss_mask"), s_.max_logits);
  Written out = {loss.mean, tiles, {}};
  if (!with_gradients) return out;

  Returned back = (*norm)->backward(at_, of_norm, normed.saved, {loss.dhidden});
  const Values of_final = std::move(back.parameters);
  Value dx = back.inputs[0];
  std::vector<Values> found(blocks.size());
  for (size_t i = blocks.size(); i-- > 0;) {
    w_.comment("back through layer " + std::to_string(i));
    if (s_.recompute) {
      // Behind the gradient, so that it is not done before its time.
      const Values held = w_.barrier({inputs[i], dx});
      dx = held[1];
      passes[i] = blocks[i].forward(at_, stream_, of_blocks[i], held[0]);
    }
    back = blocks[i].backward(at_, stream_, of_blocks[i], passes[i], dx);
    dx = back.inputs[0];
    found[i] = std::move(back.parameters);
  }
  Values for_columns;
  for (const auto& [name, size] : m.columns) {
    const Value none = w_.real(0, {size, m.width});
    for_columns.push_back(
        w_.add_rows(none, column(name.c_str()), where_there(name, dx)));
  }
  if (m.embedding_scale != 1) dx = w_.mul(dx, scale);
  const Value none = w_.real(0, table.dims());
  out.gradients.push_back(
      w_.add_rows(m.tied_head ? loss.dhead : none, ids, dx));
  out.gradients.insert(out.gradients.end(), for_columns.begin(),
                       for_columns.end());
  for (Values& each : found) {
    out.gradients.insert(out.gradients.end(), each.begin(), each.end());
  }
  out.gradients.insert(out.gradients.end(), of_final.begin(), of_final.end());
  if (!m.tied_head) out.gradients.push_back(loss.dhead);
  return out;
}

Result<std::vector<xla::Argument>> state_arguments(const StepShape& s,
                                                   const std::string& prefix) {
  auto parameters = model_parameters(s.model, s.spec);
  if (!parameters) return parameters.error();
  std::vector<xla::Argument> out;
  for (const ModelParameter& p : *parameters) {
    out.push_back({prefix + p.name, {s.wide, p.shape}});
  }
  return out;
}

Values arguments_named(const Writer& w,
                       const std::vector<xla::Argument>& named) {
  Values out;
  for (const xla::Argument& a : named) out.push_back(w.argument(a.name));
  return out;
}

}  // namespace

std::vector<xla::Argument> batch_arguments(const StepShape& s) {
  std::vector<xla::Argument> out;
  for (const char* name :
       {"input_ids", "target_ids", "loss_mask", "positions"}) {
    out.push_back({name, {Element::i32, {s.batch, s.tokens}}});
  }
  for (const auto& [name, size] : s.model.columns) {
    out.push_back({name, {Element::i32, {s.batch, s.tokens}}});
  }
  for (const AttentionPlace& place : s.places) {
    for (xla::Argument& a : integers_of(place)) out.push_back(std::move(a));
  }
  return out;
}

Result<std::string> loss_program(const StepShape& s, bool gradients) {
  auto state = state_arguments(s, "");
  if (!state) return state.error();
  std::vector<xla::Argument> all = *state;
  for (xla::Argument& a : batch_arguments(s)) all.push_back(std::move(a));
  Writer w(std::move(all), s.wide);
  auto made = Step(w, s).write(arguments_named(w, *state), gradients);
  if (!made) return made.error();
  Values results = {made->loss, made->tiles};
  results.insert(results.end(), made->gradients.begin(), made->gradients.end());
  return w.module("tessera_loss", results);
}

Result<std::string> step_program(const StepShape& s) {
  std::array<std::vector<xla::Argument>, 3> state;
  std::vector<xla::Argument> all;
  const char* prefixes[] = {"", "first.", "second."};
  for (size_t i = 0; i < 3; ++i) {
    auto some = state_arguments(s, prefixes[i]);
    if (!some) return some.error();
    all.insert(all.end(), some->begin(), some->end());
    state[i] = std::move(*some);
  }
  Writer::Reuse reuse;
  for (size_t i = 0; i < all.size(); ++i) reuse.emplace_back(all[i].name, i);
  all.push_back({"rates", {s.wide, {kRates}}});
  for (xla::Argument& a : batch_arguments(s)) all.push_back(std::move(a));
  Writer w(std::move(all), s.wide);
  const Values parameters = arguments_named(w, state[0]);
  auto made = Step(w, s).write(parameters, true);
  if (!made) return made.error();

  w.comment("optimizer");
  const Value& rates = w.argument("rates");
  const Value norm = norm_of(w, made->gradients);
  const Value scale = clip_scale(w, norm, rates);
  std::array<Values, 3> next;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Moments before = {parameters[i], w.argument(state[1][i].name),
                            w.argument(state[2][i].name)};
    Moments after =
        write_adamw(w, s.optimizer, before, made->gradients[i], rates, scale);
    next[0].push_back(std::move(after.value));
    next[1].push_back(std::move(after.first));
    next[2].push_back(std::move(after.second));
  }
  Values results;
  for (Values& each : next) {
    results.insert(results.end(), each.begin(), each.end());
  }
  for (const Value& v : {made->loss, norm, made->tiles}) results.push_back(v);
  return w.module("tessera_step", results, reuse);
}

}  // namespace tessera::model

namespace tessera {

Result<std::vector<ModelParameter>> model_parameters(const ModelConfig& m,
                                                     const LayerSpec& spec) {
  using model::Block;
  if (auto e = check_model(m); !e) return e.error();
  auto block = Block::make(spec, {m});
  if (!block) return block.error();
  auto norm = model::make_layer(spec, Slot::norm, {m});
  if (!norm) return norm.error();
  std::vector<ModelParameter> out;
  out.push_back({model::kEmbedding, {m.vocab, m.width}, 0, 0.02, {"", ""}});
  for (const auto& [name, size] : m.columns) {
    out.push_back(
        {"columns." + name + ".weight", {size, m.width}, 0, 0.02, {"", ""}});
  }
  for (int64_t i = 0; i < m.layers; ++i) {
    for (ModelParameter p : block->parameters()) {
      p.name = model::layer_name(i, p.name);
      out.push_back(std::move(p));
    }
  }
  for (ModelParameter p : (*norm)->parameters()) {
    p.name = "final_norm." + p.name;
    out.push_back(std::move(p));
  }
  if (!m.tied_head) {
    out.push_back({model::kHead,
                   {m.vocab, m.width},
                   0,
                   1 / std::sqrt(static_cast<double>(m.width)),
                   {"", ""}});
  }
  return out;
}

}  // namespace tessera
