// cli/run/check.cc: `tessera run --check`.
#include "cli/run/check.h"

#include <algorithm>

#include "cli/progress.h"

namespace tessera::cli {
namespace {

constexpr int64_t kQueryRows = 64;
constexpr int64_t kKeyRows = 16;  // each walks all queries

}  // namespace

reference::JudgeOptions judge_options(const Request& request,
                                      const AttentionShape& shape,
                                      uint64_t seed, bool flushes) {
  reference::JudgeOptions options;
  options.seed = seed;
  options.flushes = flushes;
  if (!reference::can_judge_all(request, shape)) {
    options.query_rows = kQueryRows;
    options.key_rows = kKeyRows;
  }
  return options;
}

receipt::Receipt::Check check_of(const reference::Verdict& verdict,
                                 const reference::JudgeOptions& options) {
  return {options.query_rows == 0 ? "full" : "sampled",
          verdict.rows,
          verdict.max_error,
          verdict.max_ratio,
          verdict.passed(),
          verdict.worst};
}

Result<receipt::Receipt::Check> check_run(const Batch& batch,
                                          request::AttentionData& data,
                                          uint64_t seed, bool flushes,
                                          bool rounded_sum) {
  Progress progress("checking");
  auto options = judge_options(batch.request(), data.shape, seed, flushes);
  options.rounded_sum = rounded_sum;
  options.progress = progress.callback();
  auto all = reference::judge_forward(batch, data.shape, data.forward_tensors(),
                                      options);
  if (!all) return all.error();
  if (data.backward) {
    auto more = reference::judge_backward(
        batch, data.shape, data.forward_tensors(), data.gradients(), options);
    if (!more) return more.error();
    all->rows += more->rows;
    all->max_error = std::max(all->max_error, more->max_error);
    if (more->max_ratio > all->max_ratio) {
      all->max_ratio = more->max_ratio;
      all->worst = more->worst;
    }
  }
  return check_of(*all, options);
}

}  // namespace tessera::cli
