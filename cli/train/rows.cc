// cli/train/rows.cc: all rows are looked at before the first step.
#include "cli/train/rows.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/digest.h"

namespace tessera::cli {
namespace {

// Ceilings are those of all steps from the first on, so that a run which goes
// on from another has its program.
Result<void> find_ceilings(TrainSettings& s, data::RowFiles& data) {
  if (!s.options.shards || !s.options.shards->ceilings.empty()) return {};
  const int64_t again =
      data.rows() / std::gcd(data.rows(), s.options.rows);  // the same rows
  const int64_t last = std::min(s.steps, again);
  auto all = Trainer::ceilings(
      s.options, [&, step = int64_t{0}]() mutable -> Result<Rows> {
        if (step == last) return Rows();
        return rows_of_step(s, data, ++step);
      });
  if (!all) return all.error();
  s.options.shards->ceilings = std::move(*all);
  return {};
}

}  // namespace

Result<Rows> rows_of_step(const TrainSettings& s, data::RowFiles& data,
                          int64_t step) {
  const int64_t count = s.options.rows;
  return data.take((step - 1) % data.rows() * count, count);
}

Result<ReadRows> read_rows(TrainSettings& s, const TrainFlags& f) {
  auto files = data::RowFiles::open(f.data);
  if (!files) return files.error();
  s.options.tokens = files->tokens();
  const int64_t count = s.options.rows;
  Digest digest;
  for (int64_t first = 0; first < files->rows(); first += count) {
    auto rows = files->take(first, count);
    if (!rows) return rows.error();
    auto e = Trainer::check(s.options, *rows, first);
    if (!e) return e.error();
    for (const std::vector<int32_t>& column : rows->columns) {
      digest.add(column.data(), column.size() * sizeof(int32_t));
    }
  }
  if (auto e = find_ceilings(s, *files); !e) return e.error();
  return ReadRows{std::move(*files), digest.hex()};
}

}  // namespace tessera::cli
