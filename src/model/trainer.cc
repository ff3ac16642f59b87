// model/trainer.cc: runs a trainer's steps, and reads and restores its state.
#include <algorithm>
#include <iterator>
#include <utility>

#include "base/fail.h"
#include "base/shape.h"
#include "base/timed.h"
#include "base/trace.h"
#include "model/learning_rate.h"
#include "model/mesh.h"
#include "model/program.h"
#include "model/trainer_state.h"

namespace tessera {
namespace {

using model::check_rows_of;
using model::columns_of;

constexpr int64_t kMaxLogits = int64_t{1} << 30;  // of one call

// The numbers that a step returns.
struct Told {
  float loss = 0, norm = 0;
  int64_t tiles = 0;
};

// Reads the results from number `at` on, which follow the state. Tiles are
// those of one head, so one device of each group of heads is read.
Result<Told> read_told(const Mesh& mesh,
                       const std::vector<std::vector<pjrt::Buffer>>& results,
                       size_t at) {
  Told out;
  for (const auto& [to, from] :
       {std::pair(&out.loss, at), std::pair(&out.norm, at + 1)}) {
    if (auto e = pjrt::to_host(results[0][from], to, 4); !e) return e.error();
  }
  for (size_t d = 0; d < results.size(); ++d) {
    const auto device = static_cast<int64_t>(d);
    if (model::first_of_heads(mesh, device) != device) continue;
    int32_t tiles = 0;
    auto e = pjrt::to_host(results[d][at + 2], &tiles, 4);
    if (!e) return e.error();
    out.tiles += tiles;
  }
  return out;
}

}  // namespace

Trainer::Trainer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;
Trainer::~Trainer() = default;

Result<StepReport> Trainer::step(const Rows& rows, const StepRates& rates) {
  State& s = *state_;
  if (s.values.empty()) return s.fetch().error();
  if (auto e = model::check_rates(rates); !e) return e.error();
  if (auto e = check_rows_of(s.options, s.columns, rows, 0); !e) {
    return e.error();
  }
  StepReport out;
  auto ok = timed(out.plan_ms, [&] { return s.plan(rows); });
  if (!ok) return ok.error();
  // Rates, then the batch.
  std::vector<std::vector<pjrt::Buffer>> sent(s.devices());
  ok = timed(out.transfer_ms, [&]() -> Result<void> {
    for (size_t d = 0; d < s.devices(); ++d) {
      auto scalars = s.send_rates(d, rates);
      if (!scalars) return scalars.error();
      auto batch = s.send_batch(d, rows);
      if (!batch) return batch.error();
      sent[d].push_back(std::move(*scalars));
      std::ranges::move(*batch, std::back_inserter(sent[d]));
    }
    return {};
  });
  if (!ok) return ok.error();
  std::vector<pjrt::Inputs> inputs(s.devices());
  for (size_t d = 0; d < s.devices(); ++d) {
    for (const pjrt::Buffer& b : s.values[d]) inputs[d].push_back(&b);
    for (const pjrt::Buffer& b : sent[d]) inputs[d].push_back(&b);
  }
  const TraceSpan span("train", "step");
  auto results = timed(out.run_ms, [&] {
    return pjrt::execute_on_all(*s.program, inputs, pjrt::Reused::given);
  });
  if (!results) return s.failed(results.error());
  const size_t state_size = model::kStateNames.size() * s.parameters.size();
  auto told = read_told(s.options.mesh, *results, state_size);
  if (!told) return s.failed(told.error());
  for (std::vector<pjrt::Buffer>& of_device : *results) {
    while (of_device.size() > state_size) of_device.pop_back();
  }
  s.values = std::move(*results);

  out.step = ++s.step;
  out.loss = static_cast<double>(told->loss);
  out.gradient_norm = static_cast<double>(told->norm);
  out.tiles_run = told->tiles;
  for (const int32_t counts : rows.column(RowColumn::loss_mask)) {
    out.tokens += counts;
  }
  s.tell(out);
  return out;
}

Result<std::vector<float>> Trainer::logits(const Rows& rows) {
  State& s = *state_;
  if (s.values.empty()) return s.fetch().error();
  if (auto e = check_rows_of(s.options, s.columns, rows, 0); !e) {
    return e.error();
  }
  const std::vector<int64_t> shape = {s.options.rows, s.options.tokens,
                                      s.options.model.vocab};
  const auto count = element_count(shape);
  if (!count || *count > kMaxLogits) {
    return over_limit("train",
                      "logits must be at most {}, found {} tokens of "
                      "{}",
                      kMaxLogits, shape[0] * shape[1], shape[2]);
  }
  if (!s.logits) {
    auto text = model::logits_program(s.planned.shape);
    if (!text) return text.error();
    auto program = s.compile(std::move(*text), 1);
    if (!program) return program.error();
    s.logits = std::move(*program);
  }
  if (auto e = s.plan(rows); !e) return e.error();
  std::vector<std::vector<pjrt::Buffer>> sent;
  std::vector<pjrt::Inputs> inputs(s.devices());
  for (size_t d = 0; d < s.devices(); ++d) {
    auto batch = s.send_batch(d, rows);
    if (!batch) return batch.error();
    sent.push_back(std::move(*batch));
    for (size_t i = 0; i < s.parameters.size(); ++i) {
      inputs[d].push_back(&s.values[d][i]);
    }
    for (const pjrt::Buffer& b : sent[d]) inputs[d].push_back(&b);
  }
  const TraceSpan span("train", "logits");
  auto results = pjrt::execute_on_all(*s.logits, inputs);
  if (!results) return results.error();
  std::vector<float> out(static_cast<size_t>(*count));
  for (size_t d = 0; d < s.devices(); ++d) {
    const model::Portion p = s.portion(d);
    if (p.head_part > 0) continue;  // the first has the same logits
    const model::StepShape& own = s.planned.shape;
    std::vector<float> part(static_cast<size_t>(own.batch * own.tokens) *
                            static_cast<size_t>(shape[2]));
    auto ok = pjrt::to_host((*results)[d].front(), part.data(),
                            static_cast<int64_t>(part.size() * sizeof(float)));
    if (!ok) return ok.error();
    if (s.planned.spread) {
      model::put_back(part, model::tokens_of(s.order, p), out);
    } else {
      model::put_part(part, s.options.rows, p, out);
    }
  }
  return out;
}

int64_t Trainer::steps() const { return state_->step; }
const std::vector<ModelParameter>& Trainer::parameters() const {
  return state_->parameters;
}
TrainCounters Trainer::counters() const { return state_->counters; }
const PluginPlace& Trainer::place() const { return state_->place; }
const std::string& Trainer::program_key() const { return state_->key; }
const std::string& Trainer::program_specs() const { return state_->specs; }
const std::optional<Lowering>& Trainer::lowering() const {
  return state_->lowering;
}

Result<std::string> Trainer::checkpoint() const {
  auto state = state_->fetch();
  if (!state) return state.error();
  const TrainOptions& o = state_->options;
  return model::write_checkpoint(o.model, o.precision, o.mesh,
                                 state_->parameters, *state);
}

Result<void> Trainer::check(const TrainOptions& options, const Rows& rows,
                            int64_t first) {
  return check_rows_of(options, columns_of(options.model), rows, first);
}

Result<std::vector<ShardCeilings>> Trainer::ceilings(
    const TrainOptions& options, const std::function<Result<Rows>()>& next) {
  TrainOptions open = options;
  if (open.shards) open.shards->ceilings.clear();
  auto planned = model::plan_rows(open);
  if (!planned) return planned.error();
  std::vector<ShardCeilings> out;
  std::vector<BorrowedBatch> batches;
  while (true) {
    auto rows = next();
    if (!rows) return rows.error();
    if (rows->rows == 0) return out;
    if (auto e = check(options, *rows); !e) return e.error();
    auto ok = model::remake_batches(planned->requests, rows->facts(), batches);
    if (!ok) return ok.error();
    auto each = model::spread_ceilings(planned->spread, batches);
    if (!each) return each.error();
    out = model::joined(out, *each);
  }
}

Result<std::vector<ShardCeilings>> Trainer::ceilings(
    const TrainOptions& options, const Rows& rows) {
  return ceilings(options, [&, given = false]() mutable -> Result<Rows> {
    return std::exchange(given, true) ? Rows() : rows;
  });
}

Result<void> Trainer::restore(std::string_view checkpoint,
                              std::string_view name) {
  auto state = model::read_checkpoint(checkpoint, state_->options.model,
                                      state_->parameters, name);
  if (!state) return state.error();
  return state_->put(*state);
}

}  // namespace tessera
