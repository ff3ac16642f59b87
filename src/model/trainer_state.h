// model/trainer_state.h: what a trainer holds: its programs, its state on the
// devices, the plans of its batch.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/checkpoint.h"
#include "model/mesh.h"
#include "model/row_checks.h"
#include "model/step_plan.h"
#include "pjrt/compile_cache.h"
#include "pjrt/place.h"
#include "tessera/train.h"

namespace tessera {

struct Trainer::State {
  State(const TrainOptions& o, model::PlannedStep p, pjrt::Places places)
      : options(o),
        programs({.folder = o.xla.cache_folder,
                  .max_bytes = o.xla.max_cache_bytes,
                  .max_compiles = o.xla.max_compiles}),
        planned(std::move(p)),
        on(std::move(places)) {}

  TrainOptions options;
  pjrt::CompileCache programs;  // limits cover all programs
  model::PlannedStep planned;
  std::vector<model::TakenColumn> columns;
  std::vector<ModelParameter> parameters;
  pjrt::Places on;
  PluginPlace place;
  std::string key, specs;
  std::optional<Lowering> lowering;
  std::shared_ptr<const pjrt::Loaded> program, logits;  // empty: not yet used
  TrainCounters counters;
  // For each device its parameters, then their moments. Empty before put(), and
  // after a failed step that consumed them.
  std::vector<std::vector<pjrt::Buffer>> values;
  // For each device one per request; empty for a device that uses another's.
  std::vector<std::vector<BorrowedBatch>> batches;
  std::vector<model::QueryFacts> queries;  // that the devices' batches read
  // If rows are spread, the first device's batches serve all devices. `shards`,
  // one per batch, say which device has what; `handed` is what each shard gets.
  std::vector<Shards> shards;
  std::vector<model::Integers> handed;
  std::vector<int64_t> order;  // token_order()
  int64_t step = 0;

  size_t devices() const { return on.devices.size(); }
  model::Portion portion(size_t device) const {
    return model::portion_of(options.mesh, static_cast<int64_t>(device));
  }
  // The device whose plan this device uses: the first of those with its rows.
  size_t planner(size_t device) const {
    if (planned.spread) return 0;
    return static_cast<size_t>(
        model::first_of_heads(options.mesh, static_cast<int64_t>(device)));
  }
  Result<pjrt::Buffer> send(size_t device, const pjrt::ArrayType& type,
                            const void* data) const {
    return pjrt::to_device(*on.client, on.devices[device], type, data,
                           pjrt::DataStays::during_call);
  }
  using Program = std::shared_ptr<const pjrt::Loaded>;
  Result<Program> compile(std::string text, size_t results);
  Result<void> put(const model::TrainState& state);
  // The whole state, gathered from the devices that have parts of it.
  Result<model::TrainState> fetch() const;
  Result<std::vector<float>> fetch_values(size_t kind, size_t parameter) const;
  // Drops the state if the failed run consumed it; returns the error.
  Error failed(Error why);
  Result<void> plan(const Rows& rows);
  Result<void> spread();
  // Of a layer in which one head has so many tiles.
  double attention_flops(int64_t tiles) const;
  // Fills in what the plans say of a step before it runs.
  void tell(StepReport& out) const;
  Result<pjrt::Buffer> send_rates(size_t device, const StepRates& rates) const;
  std::vector<int32_t> part_of(size_t device, RowColumn column,
                               const Rows& rows) const;
  Result<model::Integers> plan_integers(size_t device) const;
  // The device's own part of the rows, and the integers of its plans.
  Result<std::vector<pjrt::Buffer>> send_batch(size_t device,
                                               const Rows& rows) const;
};

}  // namespace tessera
