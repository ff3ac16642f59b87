// cli/run/check.cc: `tessera run --check`.
#include "cli/run/check.h"

#include <algorithm>

#include "cli/progress.h"
#include "lanes/reference/judge.h"

namespace tessera::cli {
namespace {

constexpr int64_t kQueryRows = 64;
constexpr int64_t kKeyRows = 16;  // each walks all queries

}  // namespace

Result<receipt::Receipt::Check> check_run(const Batch& batch,
                                          AttentionData& data, uint64_t seed,
                                          bool flushes) {
  Progress progress("checking");
  reference::JudgeOptions options;
  options.seed = seed;
  options.flushes = flushes;
  options.progress = progress.callback();
  const bool full = reference::can_judge_all(batch.request(), data.shape);
  if (!full) {
    options.query_rows = kQueryRows;
    options.key_rows = kKeyRows;
  }
  auto all =
      reference::judge_forward(batch.request(), batch.facts(), data.shape,
                               data.forward_tensors(), options);
  if (!all) return all.error();
  if (data.backward) {
    auto more =
        reference::judge_backward(batch.request(), batch.facts(), data.shape,
                                  data.backward_tensors(), options);
    if (!more) return more.error();
    all->rows += more->rows;
    all->max_error = std::max(all->max_error, more->max_error);
    if (more->max_ratio > all->max_ratio) {
      all->max_ratio = more->max_ratio;
      all->worst = more->worst;
    }
  }
  return receipt::Receipt::Check{full ? "full" : "sampled",
                                 all->rows,
                                 all->max_error,
                                 all->max_ratio,
                                 all->passed(),
                                 all->worst};
}

}  // namespace tessera::cli
