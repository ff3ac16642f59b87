// run/judge_run.cc: how many rows are judged, and the verdict of both passes.
#include "run/judge_run.h"

#include <algorithm>
#include <utility>

namespace tessera::run {
namespace {

constexpr int64_t kQueryRows = 64;
constexpr int64_t kKeyRows = 16;  // fewer, since each reads all queries

}  // namespace

reference::JudgeOptions judge_options(const Request& request,
                                      const AttentionShape& shape,
                                      reference::JudgeOptions given) {
  const bool all = reference::can_judge_all(request, shape);
  given.query_rows = all ? 0 : kQueryRows;
  given.key_rows = all ? 0 : kKeyRows;
  return given;
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

Result<receipt::Receipt::Check> judge_run(const RunCall& call,
                                          reference::JudgeOptions given) {
  const reference::JudgeOptions options =
      judge_options(call.batch.request(), call.shape, std::move(given));
  auto all =
      reference::judge_forward(call.batch, call.shape, call.forward, options);
  if (!all) return all.error();
  if (call.gradients) {
    auto more = reference::judge_backward(call.batch, call.shape, call.forward,
                                          *call.gradients, options);
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

}  // namespace tessera::run
