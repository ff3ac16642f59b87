// shard/buffers.cc: a shard's contents, and its lists in local numbers.
#include <algorithm>

#include "plan/transpose.h"
#include "shard/groups.h"

namespace tessera::shard {

Buffer make_buffer(const GroupSide& of, int64_t seq, int64_t self) {
  const std::vector<int32_t>& owner = of.owner;
  Buffer out;
  const int64_t size =
      of.own_capacity + came_tiles(of.rounds, of.gathered, seq);
  out.tiles.assign(static_cast<size_t>(size), {});
  out.local.assign(owner.size(), -1);
  const auto put = [&](size_t tile, int64_t at) {
    const auto t = static_cast<int64_t>(tile);
    out.tiles[static_cast<size_t>(at)] = {
        static_cast<int32_t>(of.first_batch_row + t / of.tiles_a_batch_row),
        static_cast<int32_t>(t % of.tiles_a_batch_row)};
    out.local[tile] = static_cast<int32_t>(at);
  };
  std::vector<int64_t> owned(static_cast<size_t>(seq), 0);
  std::vector<int64_t> number(owner.size());  // of a tile at its owner
  for (size_t t = 0; t < owner.size(); ++t) {
    number[t] = owned[static_cast<size_t>(owner[t])]++;
    if (owner[t] == self) put(t, out.own++);
  }
  int64_t at = of.own_capacity;
  for (const Round& round : of.rounds) {
    const int64_t from = (self - round.shift + seq) % seq;
    int64_t next = at;
    for (const int32_t t : of.pairs[static_cast<size_t>(from * seq + self)]) {
      const auto tile = static_cast<size_t>(t);
      put(tile, of.gathered
                    ? of.own_capacity + from * round.capacity + number[tile]
                    : next++);
    }
    at += round.capacity;
  }
  return out;
}

namespace {

// Appends the row in local numbers; returns whether its columns still ascend.
bool add_row(std::span<const Entry> row, const int32_t* local,
             std::vector<Entry>& out) {
  bool ascend = true;
  uint32_t before = 0;
  for (const Entry& e : row) {
    const uint32_t word =
        static_cast<uint32_t>(local[e.word >> 2]) << 2 | (e.word & 3);
    ascend = ascend && word >= before;
    before = word;
    out.push_back({word});
  }
  return ascend;
}

// Adds the work of a row in local numbers; `own`: the shard owns its queries.
void add_work(std::span<const Entry> row, bool own, const TileWork& of,
              Shard& shard) {
  int64_t work = row.empty() ? of.partial : 0;
  int64_t early = work;
  for (const Entry& e : row) {
    const int64_t n = of.of(e.tile_class());
    work += n;
    if (e.column() < shard.own_columns) early += n;
  }
  shard.work += work;
  if (own) shard.early_work += early;
}

}  // namespace

void fill_lists(const Lists& in, const Buffer& rows, const Buffer& columns,
                int64_t self, Shard& shard) {
  const Owners& o = *in.group.owners;
  const auto at_of = [&](const TileAt& t) {
    return (t.batch_row - o.first_batch_row) * o.rows + t.tile;
  };
  shard.rows = rows.tiles;
  shard.columns = columns.tiles;
  shard.own_rows = rows.own;
  shard.own_columns = columns.own;
  shard.computes.assign(rows.tiles.size(), 0);
  for (size_t i = 0; i < rows.tiles.size(); ++i) {
    const TileAt& t = rows.tiles[i];
    shard.computes[i] =
        t.tile >= 0 && o.computes[static_cast<size_t>(at_of(t))] == self;
  }
  Worklist& w = shard.forward;
  w.lists = in.lists;
  w.rows = static_cast<int64_t>(rows.tiles.size());
  w.columns = static_cast<int64_t>(columns.tiles.size());
  w.row_start.reserve(static_cast<size_t>(w.lists * w.rows) + 1);
  w.row_start.push_back(0);
  bool ascend = true;
  for (int64_t l = 0; l < in.lists; ++l) {
    const bool real = l < in.group.lists;
    for (size_t i = 0; i < rows.tiles.size(); ++i) {
      if (real && shard.computes[i]) {
        const TileAt& t = rows.tiles[i];
        const auto row = in.plan.forward.row(
            in.plan.list(t.batch_row, in.group.first_list + l), t.tile);
        const size_t before = w.entries.size();
        ascend &= add_row(row,
                          columns.local.data() +
                              (t.batch_row - o.first_batch_row) * o.columns,
                          w.entries);
        add_work(std::span(w.entries).subspan(before),
                 static_cast<int64_t>(i) < rows.own, in.options.work, shard);
        shard.steps += std::max<int64_t>(1, static_cast<int64_t>(row.size()));
      }
      w.row_start.push_back(static_cast<uint32_t>(w.entries.size()));
    }
  }
  plan::transpose(w, shard.transposed);
  if (!ascend) plan::transpose(shard.transposed, w);  // sorts the columns
  const Worklist& t = shard.transposed;
  for (int64_t l = 0; l < in.group.lists; ++l) {
    for (int64_t c = 0; c < t.rows; ++c) {
      if (columns.tiles[static_cast<size_t>(c)].tile < 0) continue;
      shard.steps_transposed +=
          std::max<int64_t>(1, static_cast<int64_t>(t.row(l, c).size()));
    }
  }
}

}  // namespace tessera::shard
