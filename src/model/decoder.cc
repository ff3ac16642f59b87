// model/decoder.cc: embedding, blocks, loss, and their backward pass.
#include "model/decoder.h"

#include <utility>

#include "model/loss.h"
#include "model/mesh.h"
#include "model/rope.h"

namespace tessera::model {
namespace {

// A model's parameters, grouped by use.
struct Held {
  Value table, head;
  Values columns, norm;
  std::vector<Values> blocks;
};

class Step {
 public:
  Step(Writer& w, const StepShape& s)
      : w_(w),
        s_(s),
        own_model_(own_model(s.model, s.mesh)),
        at_{w, s.products},
        adders_(groups_along(s.mesh, {kDataAxis, kSeqAxis})) {}

  Result<Written> write(const Values& parameters, bool with_gradients);
  Result<Value> logits(const Values& parameters);

 private:
  // A column of ids, and which tokens have one.
  struct Column {
    Value ids, there;
  };

  Value column(const char* name) {
    return w_.reshape(w_.argument(name), {s_.batch * s_.tokens});
  }
  // Keeps rows of tokens that have an id in the column; other rows are 0.
  Value where_there(const Column& column, const Value& rows) {
    return w_.select(w_.broadcast(column.there, rows.dims(), {0}), rows,
                     w_.real(0, rows.dims()));
  }
  // Runs the model up to its last norm.
  Result<Passed> run(const Values& parameters);
  Result<void> make_layers();
  void hold(const Values& parameters);
  void angles();
  // Finds which ids are in the device's part of the table, if it is divided.
  void divide_vocab();
  bool divided() const { return !part_.partners.empty(); }
  // Keeps rows of tokens whose ids are in that part; other rows are 0.
  Value of_own_ids(const Value& rows) {
    return divided() ? where_there(own_, rows) : rows;
  }
  Value rows_of_table();
  Value embed();
  // The number of tokens that count, over all devices.
  Value counted();
  Value forward(Value x);
  // The backward pass of a block that saved only its input.
  Returned in_loop(size_t i, const Value& dx);
  Returned behind_barrier(size_t i, const Value& dx);
  Value backward(Value dx);
  void add_embedding(const Value& dx, const Value& dhead, Values& gradients);

  Writer& w_;
  const StepShape& s_;
  const ModelConfig own_model_;
  Site at_;
  // Groups of devices with the same parameters and different rows.
  const Writer::Groups adders_;
  Stream stream_;
  std::vector<Block> blocks_;
  LayerPtr norm_;
  Held held_;
  Value ids_, scale_;
  VocabPart part_;
  Column own_;                   // ids relative to that part; which are in it
  std::vector<Column> columns_;  // the model's, in their order
  Values inputs_;                // of each block
  std::vector<BlockPass> passes_;
  Value tiles_;
  std::vector<Values> found_;  // parameter gradients of blocks
};

Result<void> Step::make_layers() {
  auto norm = make_layer(s_.spec, Slot::norm, {s_.model, s_.places.front()});
  if (!norm) return norm.error();
  norm_ = std::move(*norm);
  for (int64_t i = 0; i < s_.model.layers; ++i) {
    auto block = Block::make(
        s_.spec, {own_model_, s_.place_of(i), partners_of(s_.mesh)});
    if (!block) return block.error();
    blocks_.push_back(std::move(*block));
  }
  return {};
}

// Parameters are in the order of model_parameters().
void Step::hold(const Values& parameters) {
  auto next = parameters.begin();
  const auto take = [&](size_t n) {
    Values out(next, next + static_cast<int64_t>(n));
    next += static_cast<int64_t>(n);
    return out;
  };
  held_.table = take(1)[0];
  held_.columns = take(s_.model.columns.size());
  held_.blocks.reserve(blocks_.size());
  for (const Block& b : blocks_) {
    held_.blocks.push_back(take(b.parameters().size()));
  }
  held_.norm = take(norm_->parameters().size());
  held_.head = s_.model.tied_head ? held_.table : take(1)[0];
}

void Step::angles() {
  const Dims dims = {s_.batch, s_.tokens, s_.model.head_dim / 2};
  const Value turns = w_.broadcast(w_.reals(rope_steps(s_.model)), dims, {2});
  const Value positions = w_.convert(w_.argument("positions"), w_.wide());
  const Value angle = w_.mul(w_.broadcast(positions, dims, {0, 1}), turns);
  stream_ = {s_.batch, s_.tokens, w_.cos(angle), w_.sin(angle)};
}

// Each device sends n to the n-th device of its group, which so learns its n.
void Step::divide_vocab() {
  const int64_t some = held_.table.dims()[0];
  if (some == s_.model.vocab) return;
  const Writer::Groups partners = partners_of(s_.mesh);
  const Value numbers =
      w_.exchange(w_.iota({s_.model.vocab / some}, 0), 0, partners);
  const Value number = w_.reshape(w_.part(numbers, 0, 0, 1), {});
  part_ = {partners, w_.mul(number, w_.integer(static_cast<int32_t>(some)))};
}

// Each device reads the rows of its own ids, and 0 for other ids; the sum over
// partners is the whole.
Value Step::rows_of_table() {
  own_.ids = ids_;
  if (divided()) {
    const Dims& dims = ids_.dims();
    const auto some = static_cast<int32_t>(held_.table.dims()[0]);
    const Value zero = w_.integer(0, dims);
    const Value at = w_.sub(ids_, w_.broadcast(part_.first, dims, {}));
    own_.there =
        w_.both(w_.compare(xla::Compare::greater_or_equal, at, zero),
                w_.compare(xla::Compare::less, at, w_.integer(some, dims)));
    own_.ids = w_.select(own_.there, at, zero);
  }
  const Values rows = {of_own_ids(w_.rows(held_.table, own_.ids))};
  return sum_over_devices(w_, part_.partners, rows).front();
}

Value Step::embed() {
  const ModelConfig& m = s_.model;
  ids_ = column("input_ids");
  divide_vocab();
  Value x = rows_of_table();
  scale_ = w_.real(m.embedding_scale, x.dims());
  if (m.embedding_scale != 1) x = w_.mul(x, scale_);
  for (const auto& [name, size] : m.columns) {
    const Value ids = column(name.c_str());
    const Value there =
        w_.compare(xla::Compare::not_equal, ids, w_.integer(0, ids.dims()));
    const Value more = w_.rows(held_.columns[columns_.size()], ids);
    columns_.push_back({ids, there});
    x = w_.add(x, where_there(columns_.back(), more));
  }
  return x;
}

Value Step::forward(Value x) {
  tiles_ = w_.integer(0);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    w_.comment("layer " + std::to_string(i));
    inputs_.push_back(x);
    BlockPass pass = blocks_[i].forward(at_, stream_, held_.blocks[i], x);
    x = pass.out;
    tiles_ = w_.add(tiles_, pass.tiles);
    if (s_.recompute) pass = {};
    passes_.push_back(std::move(pass));
  }
  return x;
}

// The recomputation runs in a loop of one trip. The compiler cannot know that
// ids are not negative, so it keeps the loop, and does not merge the recomputed
// values with those of the forward pass.
Returned Step::in_loop(size_t i, const Value& dx) {
  const Value id = w_.reshape(w_.part(ids_, 0, 0, 1), {});
  const Value real =
      w_.compare(xla::Compare::greater_or_equal, id, w_.integer(0));
  const Value end = w_.select(real, w_.integer(1), w_.integer(0));
  // The body must change its input, or a compiler hoists it out of the loop.
  Values start = {inputs_[i], dx};
  for (const Value& p : held_.blocks[i]) {
    start.push_back(w_.real(0, p.dims()));
  }
  const auto body = [&](const Value&, const Values& carried) {
    const BlockPass pass =
        blocks_[i].forward(at_, stream_, held_.blocks[i], carried[0], true);
    Returned back =
        blocks_[i].backward(at_, stream_, held_.blocks[i], pass, carried[1]);
    Values out = {back.inputs[0], back.inputs[0]};
    append(out, back.parameters);
    return out;
  };
  Values made = w_.count(w_.integer(0), end, start, body);
  return {{made[0]}, {made.begin() + 2, made.end()}};
}

// The barrier makes the recomputation wait for the gradient.
Returned Step::behind_barrier(size_t i, const Value& dx) {
  const Values held = w_.barrier({inputs_[i], dx});
  const BlockPass pass =
      blocks_[i].forward(at_, stream_, held_.blocks[i], held[0], true);
  return blocks_[i].backward(at_, stream_, held_.blocks[i], pass, held[1]);
}

Value Step::backward(Value dx) {
  found_.resize(blocks_.size());
  for (size_t i = blocks_.size(); i-- > 0;) {
    w_.comment("back through layer " + std::to_string(i));
    Returned back =
        !s_.recompute
            ? blocks_[i].backward(at_, stream_, held_.blocks[i], passes_[i], dx)
        : s_.drops_barriers ? in_loop(i, dx)
                            : behind_barrier(i, dx);
    dx = back.inputs[0];
    found_[i] = std::move(back.parameters);
  }
  return dx;
}

// Adds the gradients of the table and of the columns. A tied table's gradient
// starts from `dhead`, the head's.
void Step::add_embedding(const Value& dx, const Value& dhead,
                         Values& gradients) {
  const ModelConfig& m = s_.model;
  Values of_columns;
  for (const auto& [name, size] : m.columns) {
    const Column& column = columns_[of_columns.size()];
    of_columns.push_back(w_.add_rows(w_.real(0, {size, m.width}), column.ids,
                                     where_there(column, dx)));
  }
  const Value scaled = m.embedding_scale != 1 ? w_.mul(dx, scale_) : dx;
  const Value none = w_.real(0, held_.table.dims());
  gradients.push_back(
      w_.add_rows(m.tied_head ? dhead : none, own_.ids, of_own_ids(scaled)));
  append(gradients, of_columns);
}

Result<Passed> Step::run(const Values& parameters) {
  angles();
  if (auto e = make_layers(); !e) return e.error();
  hold(parameters);
  const Value x = forward(embed());
  return norm_->forward(at_, held_.norm, {x});
}

Value Step::counted() {
  const Value counts = w_.convert(column("loss_mask"), w_.wide());
  const Value own = w_.reduce_sum(counts, {0});
  return sum_over_devices(w_, adders_, {own}).front();
}

Result<Written> Step::write(const Values& parameters, bool with_gradients) {
  const ModelConfig& m = s_.model;
  const auto normed = run(parameters);
  if (!normed) return normed.error();
  w_.comment("loss");
  const Loss loss = write_loss(at_, m, normed->out[0], held_.head, part_,
                               column("target_ids"), column("loss_mask"),
                               counted(), s_.max_logits);
  Written out = {loss.mean, tiles_, {}};
  if (s_.devices() > 1) out.tiles = w_.reshape(tiles_, {1});
  if (!with_gradients) {
    out.loss = sum_over_devices(w_, adders_, {loss.mean}).front();
    return out;
  }

  const Returned back =
      norm_->backward(at_, held_.norm, normed->saved, {loss.dhidden});
  const Value dx = backward(back.inputs[0]);
  add_embedding(dx, loss.dhead, out.gradients);
  for (const Values& each : found_) append(out.gradients, each);
  append(out.gradients, back.parameters);
  if (!m.tied_head) out.gradients.push_back(loss.dhead);
  w_.comment("over all devices");
  out.gradients.push_back(out.loss);
  out.gradients = sum_over_devices(w_, adders_, out.gradients);
  out.loss = std::move(out.gradients.back());
  out.gradients.pop_back();
  return out;
}

Result<Value> Step::logits(const Values& parameters) {
  const auto normed = run(parameters);
  if (!normed) return normed.error();
  Value z = write_logits(at_, s_.model, normed->out[0], held_.head).z;
  if (divided()) z = w_.gather(z, 1, part_.partners);
  return w_.reshape(z, {s_.batch, s_.tokens, s_.model.vocab});
}

}  // namespace

Result<Written> write_step(Writer& w, const StepShape& s,
                           const Values& parameters, bool with_gradients) {
  return Step(w, s).write(parameters, with_gradients);
}

Result<Value> write_step_logits(Writer& w, const StepShape& s,
                                const Values& parameters) {
  return Step(w, s).logits(parameters);
}

}  // namespace tessera::model
