// model/training_rows.cc: reads and checks all rows before the first step.
#include <algorithm>
#include <numeric>
#include <utility>

#include "base/digest.h"
#include "base/fail.h"
#include "model/training_run.h"

namespace tessera::model {
namespace {

// Ceilings cover all steps from the first, so a resumed run's program is equal.
Result<void> find_ceilings(TrainingRun& run, data::RowFiles& files) {
  TrainOptions& o = run.options;
  if (!o.shards || !o.shards->ceilings.empty()) return {};
  const int64_t again =
      files.rows() / std::gcd(files.rows(), o.rows);  // then rows repeat
  const int64_t last = std::min(run.rates.steps, again);
  auto all =
      Trainer::ceilings(o, [&, step = int64_t{0}]() mutable -> Result<Rows> {
        if (step == last) return Rows();
        return rows_of_step(o, files, ++step);
      });
  if (!all) return all.error();
  o.shards->ceilings = std::move(*all);
  return {};
}

}  // namespace

Result<Rows> rows_of_step(const TrainOptions& o, data::RowFiles& files,
                          int64_t step) {
  return files.take((step - 1) % files.rows() * o.rows, o.rows);
}

Result<TrainingRows> read_training_rows(TrainingRun& run) {
  auto files = data::RowFiles::open(run.data);
  if (!files) return files.error();
  TrainOptions& o = run.options;
  o.tokens = files->tokens();
  Digest digest;
  for (int64_t first = 0; first < files->rows(); first += o.rows) {
    auto rows = files->take(first, o.rows);
    if (!rows) return rows.error();
    auto e = Trainer::check(o, *rows, first);
    if (!e) return in_file(e.error(), run.data);
    for (const std::vector<int32_t>& column : rows->columns) {
      digest.add(column.data(), column.size() * sizeof(int32_t));
    }
  }
  if (auto e = find_ceilings(run, *files); !e) return e.error();
  return TrainingRows{std::move(*files), digest.hex()};
}

}  // namespace tessera::model
