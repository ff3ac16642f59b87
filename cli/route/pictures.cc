// cli/route/pictures.cc: picks and tiles as text.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "cli/numbers.h"
#include "cli/route/job.h"
#include "cli/run/options.h"
#include "cli/terminal.h"
#include "picture/picture.h"

namespace tessera::cli {
namespace {

// What the queries of each tile row pick: full where all pick the block,
// partial where some do; all of them are the row's union.
Result<std::string> picks_picture(const RouteJob& job,
                                  const picture::Input& like) {
  const RouteSettings& s = job.settings;
  if (s.query_tile < kMinBlock || s.query_tile > kMaxBlock ||
      s.block < kMinBlock || s.block > kMaxBlock) {
    return fmt::format("no picture of tiles of {} x {} tokens\n", s.query_tile,
                       s.block);
  }
  Request request = job.resolved.request;
  request.masks = {*make_mask(blocks(s.block))};
  request.tile = {s.query_tile, s.block};
  request.logical_block = {0, 0};
  Facts facts;
  const RouteResult& r = job.report.result;
  facts.picks = Picks{r.picks, r.heads, r.k};
  auto batch = BorrowedBatch::make(std::move(request), facts);
  if (!batch) return batch.error();
  picture::Input input{*batch,
                       "picks and their union: full where every "
                       "query of the row picks the block",
                       like.batch_row, like.head, like.columns};
  input.color = like.color;
  input.unicode = like.unicode;
  return picture::draw_text(input);
}

Result<int64_t> index_of(const std::optional<std::string>& text,
                         std::string_view what, int64_t count) {
  if (!text) return int64_t{0};
  return parse_int(*text, what, 0, std::max<int64_t>(count, 1) - 1);
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
  auto width = parse_int(*o.width, "--width", picture::kMinTextColumns, 1000);
  if (!width) return width.error();
  job.width = *width;
  return {};
}

Result<std::string> route_pictures(const RouteCommandFlags& o,
                                   const RouteJob& job, const Batch& batch) {
  const RouteResult& r = job.report.result;
  picture::Input input{
      batch, "tiles: " + job.report.mask, job.batch_row,
      job.head * batch.plan().heads / r.heads,
      job.width ? *job.width
                : std::max(picture::kMinTextColumns, terminal_columns())};
  input.color = shows_color(isatty(STDOUT_FILENO), std::getenv("NO_COLOR"),
                            std::getenv("TERM"));
  input.unicode = !o.ascii && locale_is_utf8();
  picture::Input picks = input;
  picks.head = job.head;
  auto first = picks_picture(job, picks);
  if (!first) return first;
  auto second = picture::draw_text(input);
  if (!second) return second;
  return "\n" + *first + "\n" + *second;
}

}  // namespace tessera::cli
