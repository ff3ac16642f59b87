// model/trainer_state.h: what a trainer holds: its programs, its state on the
// device, the plans of its batch.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/checkpoint.h"
#include "model/row_checks.h"
#include "model/step_plan.h"
#include "pjrt/compile_cache.h"
#include "pjrt/place.h"
#include "tessera/train.h"

namespace tessera {

struct Trainer::State {
  TrainOptions options;
  model::PlannedStep planned;
  std::vector<model::TakenColumn> columns;
  std::vector<ModelParameter> parameters;
  pjrt::Place on;
  PluginPlace place;
  std::string key;
  std::shared_ptr<const pjrt::Loaded> program, logits;  // empty: not asked for
  TrainCounters counters;
  // Parameters, then their moments; empty where a failed step took them.
  std::vector<pjrt::Buffer> values;
  std::vector<BorrowedBatch> batches;  // one a request
  int64_t step = 0;

  Result<pjrt::Buffer> send(const pjrt::ArrayType& type,
                            const void* data) const {
    return pjrt::to_device(*on.client, *on.device, type, data,
                           pjrt::DataStays::during_call);
  }
  using Program = std::shared_ptr<const pjrt::Loaded>;
  Result<Program> compile(std::string text, size_t results);
  Result<void> put(const model::TrainState& state);
  Result<model::TrainState> fetch() const;
  Result<void> plan(const Rows& rows);
  Result<pjrt::Buffer> send_rates(const StepRates& rates) const;
  Result<std::vector<pjrt::Buffer>> send_batch(const Rows& rows) const;
};

}  // namespace tessera
