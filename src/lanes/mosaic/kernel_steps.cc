// lanes/mosaic/kernel_steps.cc: arranges a batch's steps row by row.
#include "lanes/mosaic/kernel_steps.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string_view>
#include <vector>

#include "base/fail.h"
#include "base/integers.h"
#include "lanes/mosaic/shape.h"
#include "plan/step_word.h"
#include "plan/steps.h"

namespace tessera::mosaic {
namespace {

constexpr uint32_t kFiller = 0;
constexpr uint32_t kMasked = 1;
constexpr uint32_t kFull = 2;
constexpr uint32_t kToClean = 3;

std::vector<bool> vetoed_in_row(const mask::Bound& bound,
                                const mask::BoundRow& row) {
  const int64_t tile = bound.tile.kv;
  std::vector<bool> out;
  for (int64_t begin = 0; begin < bound.kv_len; begin += tile) {
    const int64_t end = begin + tile;
    int32_t all = 0;  // negative if any id is
    if (row.ids && end <= bound.kv_len) {
      for (int64_t k = begin; k < end; ++k) all |= row.ids[k];
    }
    out.push_back(end > std::min(row.valid, bound.kv_len) || all < 0);
  }
  return out;
}

struct Tile {
  int64_t column;
  uint32_t step_class;
};

// Writes the tiles of one row, the first `live` steps, in the order of their
// classes, then the filler of the row's last pass.
void arrange(std::span<Step> row, size_t live, const std::vector<bool>& vetoed,
             std::vector<Tile>& tiles) {
  tiles.clear();
  for (const uint32_t due : {kFull, kMasked, kToClean}) {
    for (const Step& s : row.first(live)) {
      const int64_t column = s.column();
      const uint32_t masked =
          vetoed[static_cast<size_t>(column)] ? kToClean : kMasked;
      const uint32_t found = s.step_class() == kFull ? kFull : masked;
      if (found == due) tiles.push_back({column, found});
    }
  }
  tiles.resize(row.size(), {tiles.front().column, kFiller});
  const int64_t number = row.front().row();
  for (size_t i = 0; i < row.size(); ++i) {
    row[i] = plan::step_of(number, tiles[i].column, tiles[i].step_class, i == 0,
                           i + 1 == row.size());
  }
}

// Arranges the rows of one list.
void arrange_list(Steps& steps, size_t list, const std::vector<bool>& vetoed) {
  std::vector<Tile> tiles;
  size_t begin = steps.range[list];
  for (size_t at = begin; at < steps.range[list + 1]; ++at) {
    if (!steps.steps[at].last()) continue;
    const auto row = std::span(steps.steps).subspan(begin, at + 1 - begin);
    const auto live = std::ranges::count_if(
        row, [](Step s) { return s.step_class() != kFiller; });
    // An empty row still has one step, which must be masked.
    arrange(row, std::max<size_t>(static_cast<size_t>(live), 1), vetoed, tiles);
    begin = at + 1;
  }
}

// Arranges the lists of a whole batch.
void arrange_lists(const VetoedTiles& vetoed, const Plan& plan, Steps& steps) {
  for (int64_t b = 0; b < plan.batch; ++b) {
    for (int64_t h = 0; h < plan.heads; ++h) {
      arrange_list(steps, static_cast<size_t>(plan.list(b, h)),
                   vetoed[static_cast<size_t>(b)]);
    }
  }
}

// Writes rows of steps, each filled up to whole passes.
class RowWriter {
 public:
  RowWriter(int64_t tiles_per_pass, Steps& out)
      : tiles_per_pass_(tiles_per_pass), out_(out) {}

  void add(std::span<const Step> row) {
    const auto live = static_cast<int64_t>(row.size());
    const int64_t filled = round_up(live, tiles_per_pass_);
    for (int64_t i = 0; i < filled; ++i) {
      const Step& s = row[static_cast<size_t>(std::min(i, live - 1))];
      out_.steps.push_back(plan::step_of(s.row(), s.column(),
                                         i < live ? s.step_class() : kFiller,
                                         i == 0, i + 1 == filled));
    }
  }
  void add_empty(int64_t row, int64_t column = 0) {
    const Step step = plan::step_of(row, column, plan::kStepEmpty, true, true);
    add({&step, 1});
  }

 private:
  int64_t tiles_per_pass_;
  Steps& out_;
};

// Cuts one transposed list into chunks.
class Cutter {
 public:
  Cutter(const Steps& steps, size_t list, int64_t rows, int64_t chunks)
      : rows_(rows), first_(static_cast<size_t>(chunks) + 1) {
    for (size_t i = steps.range[list]; i < steps.range[list + 1]; ++i) {
      const Step& s = steps.steps[i];
      if (begin_.empty()) column_ = s.row();
      if (s.first()) begin_.push_back(live_.size());
      if (s.step_class() != kFiller) live_.push_back(s);
    }
    const int64_t end = column_ + static_cast<int64_t>(begin_.size());
    begin_.push_back(live_.size());
    first_.back() = end;
    std::fill(first_.begin(), first_.end() - 1, end - 1);
    end_.assign(static_cast<size_t>(chunks), 0);
    for (const Step& s : live_) {
      const auto chunk = static_cast<size_t>(s.column() / rows_);
      first_[chunk] = std::min(first_[chunk], s.row());
      end_[chunk] = std::max(end_[chunk], s.row() + 1);
    }
    // Lets neither fall from chunk to chunk, and leaves no column out.
    first_[0] = column_;
    for (size_t c = end_.size() - 1; c > 0; --c) {
      first_[c] = std::min(first_[c], first_[c + 1]);
    }
    int64_t before = 0;
    for (size_t c = 0; c < end_.size(); ++c) {
      before = std::max({before, end_[c], first_[c] + 1, first_[c + 1]});
      end_[c] = before;
    }
  }

  // Writes the steps of a chunk. Chunks must be written in order.
  void write(size_t chunk, RowWriter& out) {
    const int64_t row = static_cast<int64_t>(chunk) * rows_;
    for (int64_t c = first_[chunk]; c < end_[chunk]; ++c) {
      size_t& at = begin_[static_cast<size_t>(c - column_)];
      size_t end = at;
      while (end < live_.size() && live_[end].row() == c &&
             live_[end].column() < row + rows_) {
        ++end;
      }
      if (at == end) {
        out.add_empty(c, row);
      } else {
        out.add(std::span(live_).subspan(at, end - at));
      }
      at = end;
    }
  }

 private:
  int64_t rows_;
  int64_t column_ = 0;  // the list's first column
  std::vector<Step> live_;
  std::vector<size_t> begin_;  // first of each column's remaining steps
  std::vector<int64_t> first_, end_;
};

// Whether each local column of the shard has a vetoed key.
std::vector<bool> vetoed_columns(const VetoedTiles& vetoed,
                                 const Shard& shard) {
  std::vector<bool> out;
  for (const TileAt& t : shard.columns) {
    out.push_back(
        t.tile < 0 ||
        vetoed[static_cast<size_t>(t.batch_row)][static_cast<size_t>(t.tile)]);
  }
  return out;
}

// The steps of a shard that a call takes.
Steps taken_steps(const Steps& packed, const MosaicKernel& kernel,
                  const TakesTile& takes) {
  const bool backward = kernel.call.backward;
  Steps out;
  out.tiles_per_pass = kernel.options.tiles_per_pass;
  out.range.push_back(0);
  RowWriter rows(out.tiles_per_pass, out);
  std::vector<Step> taken;
  for (size_t list = 0; list + 1 < packed.range.size(); ++list) {
    // The backward kernel takes every column from 0 on.
    int64_t due = 0;
    size_t begin = packed.range[list];
    for (size_t at = begin; at < packed.range[list + 1]; ++at) {
      const Step& s = packed.steps[at];
      if (!s.last()) continue;
      for (; backward && due < s.row(); ++due) rows.add_empty(due);
      auto row = std::span(packed.steps).subspan(begin, at + 1 - begin);
      if (takes) {
        taken.clear();
        std::ranges::copy_if(
            row, std::back_inserter(taken),
            [&](const Step& t) { return takes(t.row(), t.column()); });
        row = taken;
      }
      if (!row.empty()) rows.add(row);
      due = s.row() + 1;
      begin = at + 1;
    }
    // A list without keys has a step too, so that its dQ is written.
    if (backward && due == 0) rows.add_empty(0);
    out.range.push_back(static_cast<uint32_t>(out.steps.size()));
  }
  return out;
}

// Appends the words of every chunk (shape.h), 0 for chunks of padding.
void add_chunk_words(const Steps& steps, const MosaicKernel& kernel,
                     std::vector<int32_t>& range) {
  const auto chunks = static_cast<size_t>(chunks_of(kernel));
  const size_t before = range.size();
  for (size_t c = 0; c + 1 < steps.range.size(); ++c) {
    const ChunkColumns found = chunk_columns(steps, c, chunks);
    for (const int64_t n : {found.first, found.end, found.begins, found.ends}) {
      range.push_back(static_cast<int32_t>(n));
    }
  }
  range.resize(before + static_cast<size_t>(step_lists(kernel) * kChunkWords),
               0);
}

Result<void> check_size(std::string_view what, int64_t found, int64_t room) {
  if (found <= room) return {};
  return over_limit("mosaic", "{} must fit the kernel's {}, found {}", what,
                    room, found);
}

// Must run before steps are cut or counted, which relies on the kernel's sizes.
Result<void> check_plan(const Plan& plan, const MosaicKernel& kernel) {
  if (plan.heads != kernel.plan_heads) {
    return invalid("mosaic",
                   "heads with masks of their own must be the kernel's {}, "
                   "found {}",
                   kernel.plan_heads, plan.heads);
  }
  if (plan.tile != kernel.tile) {
    return invalid("mosaic",
                   "a plan's tile must be the kernel's {}x{}, found {}x{}",
                   kernel.tile.q, kernel.tile.kv, plan.tile.q, plan.tile.kv);
  }
  if (auto e = check_size("batch", plan.batch, kernel.batch); !e) return e;
  if (auto e = check_size("q_len", plan.q_len, kernel.q_len); !e) return e;
  return check_size("kv_len", plan.kv_len, kernel.kv_len);
}

}  // namespace

VetoedTiles vetoed_tiles(const mask::Bound& bound) {
  VetoedTiles out;
  for (const mask::BoundRow& row : bound.rows) {
    out.push_back(vetoed_in_row(bound, row));
  }
  return out;
}

Result<Steps> kernel_steps(const mask::Bound& bound, const Plan& plan,
                           const MosaicKernel& kernel) {
  if (auto e = check_plan(plan, kernel); !e) return e.error();
  auto steps = plan::steps_of_plan(plan, kernel.call.backward,
                                   kernel.options.tiles_per_pass);
  if (!steps) return steps;
  cut_for(kernel, *steps);  // for chunks, which only backward has
  if (!kernel.call.backward) arrange_lists(vetoed_tiles(bound), plan, *steps);
  const auto found = static_cast<int64_t>(steps->steps.size());
  if (auto e = check_size("steps", found, kernel.steps); !e) return e.error();
  return steps;
}

void cut_for(const MosaicKernel& kernel, Steps& steps) {
  if (kernel.query_chunk == 0) return;
  steps =
      cut_steps(steps, kernel.query_chunk / kernel.tile.q, chunks_of(kernel));
}

Steps cut_steps(const Steps& steps, int64_t rows, int64_t chunks) {
  Steps out;
  out.tiles_per_pass = steps.tiles_per_pass;
  out.range.push_back(0);
  RowWriter writer(steps.tiles_per_pass, out);
  for (size_t list = 0; list + 1 < steps.range.size(); ++list) {
    Cutter cutter(steps, list, rows, chunks);
    for (size_t chunk = 0; chunk < static_cast<size_t>(chunks); ++chunk) {
      cutter.write(chunk, writer);
      out.range.push_back(static_cast<uint32_t>(out.steps.size()));
    }
  }
  return out;
}

ChunkColumns chunk_columns(const Steps& steps, size_t chunk, size_t chunks) {
  const auto first = [&](size_t c) {
    return steps.steps[steps.range[c]].row();
  };
  const auto end = [&](size_t c) {
    return steps.steps[steps.range[c + 1] - 1].row() + 1;
  };
  const size_t turn = chunk % chunks;
  return {first(chunk), end(chunk), turn == 0 ? 0 : end(chunk - 1),
          turn + 1 == chunks ? end(chunk) : first(chunk + 1)};
}

Result<std::vector<StepRange>> page_ranges(const Steps& steps,
                                           const MosaicKernel& kernel) {
  std::vector<StepRange> out;
  const int64_t asked = kernel.options.page_steps;
  const auto page = static_cast<size_t>(asked > 0 ? asked : kernel.page);
  const auto most = static_cast<size_t>(pages_of_list(kernel));
  for (size_t list = 0; list + 1 < steps.range.size(); ++list) {
    const size_t end = steps.range[list + 1];
    StepRange own = {steps.range[list], steps.range[list]};
    const size_t before = out.size();
    size_t row = own.begin;
    for (size_t at = own.begin; at < end; ++at) {
      if (!steps.steps[at].last()) continue;
      if (page > 0 && at + 1 - own.begin > page) {
        out.push_back(own);
        own.begin = row;
      }
      own.end = row = at + 1;
    }
    out.push_back(own);
    if (out.size() - before > most ||
        (page > 0 && own.end - own.begin > page)) {
      return over_limit("mosaic",
                        "a list's steps must fit the kernel's {} pages of {}, "
                        "found {}",
                        most, page, end - steps.range[list]);
    }
    out.resize(before + most, {end, end});
  }
  return out;
}

Result<void> place_steps(const Steps& steps, const MosaicKernel& kernel,
                         MosaicArrays& out) {
  auto pages = page_ranges(steps, kernel);
  if (!pages) return pages.error();
  const bool paged = kernel.page > 0;
  const auto lists = static_cast<size_t>(step_lists(kernel));
  const auto of_list = static_cast<size_t>(pages_of_list(kernel));
  const std::vector<int32_t> bits_of = std::move(out.bits_of);
  out.bits_of.assign(bits_of.size(), kNoPairs);
  out.steps.assign(static_cast<size_t>(kernel.steps), 0);
  out.range.assign(lists * of_list + (paged ? lists : 1), 0);
  for (size_t n = 0; n < pages->size(); ++n) {
    const auto [begin, end] = (*pages)[n];
    const size_t first = paged ? n * static_cast<size_t>(kernel.page) : begin;
    int32_t rows = 0;
    for (size_t i = begin; i < end; ++i) {
      const size_t place = first + i - begin;
      out.steps[place] = static_cast<int32_t>(steps.steps[i].word);
      if (!bits_of.empty()) out.bits_of[place] = bits_of[i];
      rows += steps.steps[i].last() ? 1 : 0;
    }
    if (paged) {
      out.range[n] = static_cast<int32_t>(end - begin);
      out.range[lists * of_list + n / of_list] += rows;
    }
  }
  if (!paged) {
    std::ranges::copy(steps.range, out.range.begin());
    std::fill(out.range.begin() + std::ssize(steps.range), out.range.end(),
              static_cast<int32_t>(steps.range.back()));
  }
  if (kernel.query_chunk > 0) add_chunk_words(steps, kernel, out.range);
  return {};
}

int64_t steps_in(const MosaicKernel& kernel, std::span<const int32_t> range) {
  if (kernel.page == 0) {
    return range[static_cast<size_t>(step_lists(kernel))];
  }
  const auto pages = static_cast<size_t>(kernel.steps / kernel.page);
  int64_t out = 0;
  for (const int32_t n : range.first(pages)) out += n;
  return out;
}

Result<std::vector<Steps>> shard_steps(const Batch& batch,
                                       const VetoedTiles& vetoed,
                                       const Shards& shards, size_t index,
                                       const MosaicKernel& kernel,
                                       const std::vector<TakesTile>& calls) {
  const bool backward = kernel.call.backward;
  auto packed =
      pack_shard(batch, shards, static_cast<int64_t>(index), backward);
  if (!packed) return packed.error();
  std::vector<Steps> out;
  out.reserve(calls.size());
  for (const TakesTile& takes : calls) {
    out.push_back(taken_steps(*packed, kernel, takes));
  }
  if (backward) return out;
  const std::vector<bool> columns =
      vetoed_columns(vetoed, shards.shards[index]);
  for (Steps& steps : out) {
    for (size_t list = 0; list + 1 < steps.range.size(); ++list) {
      arrange_list(steps, list, columns);
    }
  }
  return out;
}

}  // namespace tessera::mosaic
