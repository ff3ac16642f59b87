// cli/route/view.cc: reads row, head and width and checks their ranges.
#include "cli/route/view.h"

#include <algorithm>

#include "picture/picture.h"
#include "request/numbers.h"

namespace tessera::cli {
namespace {

Result<int64_t> index_of(const std::optional<std::string>& text,
                         std::string_view what, int64_t count) {
  if (!text) return int64_t{0};
  return request::parse_int(*text, what, 0, std::max<int64_t>(count, 1) - 1);
}

}  // namespace

Result<void> read_view(const RouteCommandFlags& o, const RunOptions& sizes,
                       RouteJob& job) {
  routing::RouteShape shape;
  if (job.arrays) {
    shape = {job.q.view().heads, job.k.view().heads, job.q.view().dim};
  } else {
    const AttentionShape& s = sizes.data.shape;
    shape = {s.heads, s.kv_heads, s.head_dim};
  }
  int64_t heads = routing::heads_of(job.settings.rule, shape);
  for (const auto* given : {&job.picks.picks, &job.picks.tile_picks}) {
    if (*given) heads = (*given)->view().heads;
  }
  auto batch_row =
      index_of(o.batch_row, "--batch-row", job.resolved.request.batch);
  if (!batch_row) return batch_row.error();
  job.batch_row = *batch_row;
  auto head = index_of(o.head, "--head", heads);
  if (!head) return head.error();
  job.head = *head;
  if (!o.width) return {};
  auto width = request::parse_int(*o.width, "--width", picture::kMinTextColumns,
                                  picture::kMaxTextColumns);
  if (!width) return width.error();
  job.width = *width;
  return {};
}

}  // namespace tessera::cli
