// cli/route/pictures.cc: draws picks as tiles of queries and blocks.
#include "cli/route/pictures.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "cli/terminal.h"
#include "picture/picture.h"

namespace tessera::cli {
namespace {

// The picks of each tile row: a block is full if all queries of the row pick
// it, and partial if some do. The blocks shown are the row's union.
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

}  // namespace

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
