// plan/splash.cc: JAX Splash attention's MaskInfo arrays from a plan's lists.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>

#include "base/fail.h"
#include "mask/bind.h"
#include "plan/batch_state.h"
#include "plan/bitmaps.h"
#include "tessera/layouts.h"

namespace tessera {
namespace {

constexpr std::string_view kWhere = "splash";

size_t index(int64_t i) { return static_cast<size_t>(i); }

// A tile that the kernel computes: its index within its line of the grid, and
// its number among the partial blocks (-1: a full tile).
struct Live {
  int32_t minor = 0;
  int32_t block = -1;
};

// The live tiles of one shard, line by line in the order of the kernel's grid.
// Forward lines are (head, q) and hold key tiles; dkv lines are (kv, head) and
// hold query tiles.
struct Lines {
  std::vector<int64_t> start;
  std::vector<Live> live;

  int64_t count() const { return static_cast<int64_t>(start.size()) - 1; }
  std::span<const Live> line(int64_t l) const {
    return {live.data() + start[index(l)],
            index(start[index(l + 1)] - start[index(l)])};
  }
  int64_t widest() const {
    int64_t width = 0;
    for (int64_t l = 0; l < count(); ++l) {
      width = std::max(width, static_cast<int64_t>(line(l).size()));
    }
    return width;
  }
};

// The distinct partial tiles of one batch row, numbered by first occurrence
// over its lists, as Splash numbers them.
struct Blocks {
  Bitmaps bitmaps;  // of_entry begins at first_entry
  size_t first_entry = 0;

  int64_t count() const {
    return static_cast<int64_t>(bitmaps.words.size()) / bitmaps.words_per_tile;
  }
  bool bit(int64_t block, int64_t i) const {
    const int64_t word = block * bitmaps.words_per_tile + i / 64;
    return bitmaps.words[index(word)] >> (i % 64) & 1;
  }
  // An iterator, so that the caller can compare a range of tiles.
  auto number_of(size_t entry) const {
    return bitmaps.of_entry.begin() +
           static_cast<std::ptrdiff_t>(entry - first_entry);
  }
};

// The values of the three grid arrays before the choice of dtype.
struct Grid {
  int64_t heads = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<int32_t> data_next;
  std::vector<int32_t> mask_next;
  std::vector<int32_t> block_mask;

  void allocate() {
    const size_t cells = index(heads * rows * columns);
    data_next.assign(cells, 0);
    mask_next.assign(cells, 0);
    block_mask.assign(cells, 0);
  }
};

Result<void> check_divides(std::string_view part, int64_t a,
                           std::string_view whole, int64_t b) {
  if (b % a == 0) return {};
  return invalid(kWhere, "{} must divide {}, found {} for {}", part, whole, a,
                 b);
}

Result<void> check_positive(std::string_view what, int64_t value) {
  if (value >= 1 && value <= kMaxBatch) return {};
  return invalid(kWhere, "{} must be from 1 to {}, found {}", what, kMaxBatch,
                 value);
}

Result<void> check_options(const Plan& plan, int64_t batch_row, int64_t heads,
                           const SplashOptions& o) {
  if (batch_row < 0 || batch_row >= plan.batch) {
    return invalid(kWhere, "batch_row must be from 0 to {}, found {}",
                   plan.batch - 1, batch_row);
  }
  for (auto e :
       {check_positive("heads", heads), check_positive("q_shards", o.q_shards),
        check_positive("head_shards", o.head_shards)}) {
    if (!e) return e;
  }
  for (auto e : {
           check_divides("tile q", plan.tile.q, "q_len", plan.q_len),
           check_divides("tile kv", plan.tile.kv, "kv_len", plan.kv_len),
           check_divides("q_shards", o.q_shards, "q_len", plan.q_len),
           check_divides("tile q", plan.tile.q, "the q_len of a shard",
                         plan.q_len / o.q_shards),
           check_divides("head_shards", o.head_shards, "heads", heads),
           check_divides("the plan's heads", plan.heads, "heads", heads),
       }) {
    if (!e) return e;
  }
  return {};
}

// An error if a mask depends on a fact of the batch: the kernel computes masks
// from (query, key) positions only.
Result<void> check_computable(const Request& request, const Facts& facts) {
  const auto refuse = [](std::string_view what) {
    return invalid(kWhere,
                   "a mask that the kernel computes must depend on positions "
                   "alone, found {}",
                   what);
  };
  for (const Mask& mask : request.masks) {
    if (mask.names.documents) return refuse("documents");
    if (mask.names.segments) return refuse("segments");
    if (mask.names.prefix) return refuse("prefix");
    if (mask.names.picks) return refuse("picks");
    if (mask.names.tree) return refuse("tree");
    if (mask.names.same != 0) return refuse("same");
  }
  if (facts.valid_token_counts) return refuse("valid_token_counts");
  if (facts.valid_slot_counts) return refuse("valid_slot_counts");
  return {};
}

Error too_large() {
  return over_limit(kWhere, "the arrays must fit {} bytes, found more",
                    kMaxSplashBytes);
}

// Numbers every partial tile 0, for a kernel that reads no blocks.
Bitmaps mark_partial(const Plan& plan, int64_t batch_row) {
  const Worklist& w = plan.forward;
  Bitmaps marks;
  marks.words_per_tile = 1;
  for (int64_t h = 0; h < plan.heads; ++h) {
    for (int64_t r = 0; r < w.rows; ++r) {
      for (const Entry e : w.row(plan.list(batch_row, h), r)) {
        marks.of_entry.push_back(e.tile_class() == TileClass::full ? -1 : 0);
      }
    }
  }
  return marks;
}

Result<Blocks> find_blocks(const Batch::State& batch, int64_t batch_row,
                           bool marks_only) {
  const Plan& plan = batch.plan;
  const Worklist& w = plan.forward;
  const int64_t area = plan.tile.q * plan.tile.kv;
  auto bitmaps = marks_only
                     ? Result<Bitmaps>(mark_partial(plan, batch_row))
                     : plan::make_bitmaps_of(batch, batch_row, batch_row + 1,
                                             {area, kMaxSplashBytes}, kWhere);
  if (!bitmaps) return bitmaps.error();
  return Blocks{std::move(*bitmaps),
                w.row_start[index(plan.list(batch_row, 0) * w.rows)]};
}

// For each plan head of the batch row: the first plan head with the same mask.
std::vector<int64_t> find_same_masks(const Plan& plan, int64_t batch_row,
                                     const Blocks& blocks) {
  const Worklist& w = plan.forward;
  const auto same = [&](int64_t a, int64_t b) {
    for (int64_t r = 0; r < w.rows; ++r) {
      const auto x = w.row(plan.list(batch_row, a), r);
      const auto y = w.row(plan.list(batch_row, b), r);
      if (!std::equal(x.begin(), x.end(), y.begin(), y.end())) return false;
      const auto at = blocks.number_of(index(x.data() - w.entries.data()));
      const auto bt = blocks.number_of(index(y.data() - w.entries.data()));
      const auto size = static_cast<std::ptrdiff_t>(x.size());
      if (!std::equal(at, at + size, bt)) return false;
    }
    return true;
  };
  std::vector<int64_t> distinct;
  std::vector<int64_t> mask_of(index(plan.heads));
  for (int64_t h = 0; h < plan.heads; ++h) {
    const auto found =
        std::find_if(distinct.begin(), distinct.end(),
                     [&](int64_t known) { return same(known, h); });
    mask_of[index(h)] = found == distinct.end() ? h : *found;
    if (found == distinct.end()) distinct.push_back(h);
  }
  return mask_of;
}

// The lines of query tiles [row0, row0 + rows) of the given plan heads.
Lines make_lines(const Plan& plan, int64_t batch_row, const Blocks& blocks,
                 const std::vector<int64_t>& heads, int64_t row0, int64_t rows,
                 bool dkv) {
  const Worklist& w = plan.forward;
  const auto head_count = static_cast<int64_t>(heads.size());
  const auto each = [&](auto&& visit) {
    for (int64_t h = 0; h < head_count; ++h) {
      for (int64_t r = 0; r < rows; ++r) {
        for (const Entry& e :
             w.row(plan.list(batch_row, heads[index(h)]), row0 + r)) {
          const int64_t c = e.column();
          visit(dkv ? c * head_count + h : h * rows + r, dkv ? r : c, e);
        }
      }
    }
  };
  Lines lines;
  lines.start.assign(index(head_count * (dkv ? w.columns : rows) + 1), 0);
  each([&](int64_t line, int64_t, const Entry&) {
    ++lines.start[index(line + 1)];
  });
  for (size_t l = 1; l < lines.start.size(); ++l) {
    lines.start[l] += lines.start[l - 1];
  }
  lines.live.resize(index(lines.start.back()));
  std::vector<int64_t> next(lines.start.begin(), lines.start.end() - 1);
  each([&](int64_t line, int64_t minor, const Entry& e) {
    lines.live[index(next[index(line)]++)] = {
        static_cast<int32_t>(minor),
        *blocks.number_of(index(&e - w.entries.data()))};
  });
  return lines;
}

// The position of a shard in the arrays, and the size of its lines.
struct Place {
  int64_t head0 = 0;
  int64_t heads = 1;
  int64_t row0 = 0;
  int64_t rows = 0;   // query tiles of the shard
  int64_t slots = 0;  // slots of a line
  bool shrunk = false;
  bool dkv = false;
};

// At every step the kernel prefetches the data of the next live tile and,
// separately, the mask of the next partial tile. After the last one it wraps
// around to the first. So the grid is filled from its end.
void fill_shard(const Lines& lines, const Place& p, Grid& grid) {
  int32_t data = 0;
  int32_t mask = 0;
  if (!lines.live.empty()) data = lines.live.front().minor;
  for (const Live& t : lines.live) {
    if (t.block >= 0) {
      mask = t.block;
      break;
    }
  }
  const int64_t step = p.dkv ? grid.columns : 1;
  const int64_t widest = p.shrunk ? lines.widest() : 0;
  for (int64_t l = lines.count() - 1; l >= 0; --l) {
    const int64_t head = p.head0 + (p.dkv ? l % p.heads : l / p.rows);
    const int64_t row = p.row0 + (p.dkv ? 0 : l % p.rows);
    const int64_t column = p.dkv ? l / p.heads : 0;
    const int64_t base = (head * grid.rows + row) * grid.columns + column;
    const auto put = [&](int64_t slot, int32_t tile_class) {
      const size_t at = index(base + slot * step);
      grid.data_next[at] = data;
      grid.mask_next[at] = mask;
      grid.block_mask[at] = tile_class;
    };
    const auto visit = [&](const Live& t, int64_t slot) {
      data = t.minor;
      if (t.block >= 0) mask = t.block;
      put(slot, t.block >= 0 ? 1 : 2);
    };
    const std::span<const Live> live = lines.line(l);
    auto left = static_cast<int64_t>(live.size());
    if (!p.shrunk) {
      for (int64_t slot = p.slots - 1; slot >= 0; --slot) {
        if (left > 0 && live[index(left - 1)].minor == slot) {
          visit(live[index(--left)], slot);
        } else {
          put(slot, 0);
        }
      }
      continue;
    }
    // In a shrunk grid, live tiles move to the front of a forward line and to
    // the back of a dkv line, and the shard's unused slots stay 0. A shard
    // narrower than the arrays repeats its last slot, so nothing new is
    // fetched.
    const int64_t shift = p.dkv ? widest - left : 0;
    const bool repeats = left == widest || (p.dkv && left > 0);
    while (left > 0) {
      --left;
      visit(live[index(left)], shift + left);
      if (left + 1 == static_cast<int64_t>(live.size()) && repeats) {
        for (int64_t slot = widest; slot < p.slots; ++slot) put(slot, 0);
      }
    }
  }
}

SplashArray pack(const std::vector<int32_t>& values, std::vector<int64_t> shape,
                 bool downcast) {
  SplashArray a;
  a.shape = std::move(shape);
  const int32_t most =
      values.empty() ? 0 : *std::max_element(values.begin(), values.end());
  if (downcast) {
    a.type = most <= INT8_MAX    ? SplashType::int8
             : most <= INT16_MAX ? SplashType::int16
                                 : SplashType::int32;
  }
  const auto store = [&]<class T>(T) {
    a.bytes.resize(values.size() * sizeof(T));
    for (size_t i = 0; i < values.size(); ++i) {
      const T v = static_cast<T>(values[i]);
      std::memcpy(a.bytes.data() + i * sizeof(T), &v, sizeof(T));
    }
  };
  if (a.type == SplashType::int8) {
    store(int8_t{});
  } else if (a.type == SplashType::int16) {
    store(int16_t{});
  } else {
    store(int32_t{});
  }
  return a;
}

SplashArray pack_blocks(const Blocks& blocks, const Tile& tile, bool dkv) {
  SplashArray a;
  a.type = SplashType::boolean;
  a.shape = {blocks.count(), dkv ? tile.kv : tile.q, dkv ? tile.q : tile.kv};
  a.bytes.resize(index(blocks.count() * tile.q * tile.kv));
  size_t at = 0;
  for (int64_t b = 0; b < blocks.count(); ++b) {
    for (int64_t i = 0; i < a.shape[1]; ++i) {
      for (int64_t j = 0; j < a.shape[2]; ++j) {
        const int64_t q = dkv ? j : i;
        const int64_t k = dkv ? i : j;
        a.bytes[at++] = blocks.bit(b, q * tile.kv + k);
      }
    }
  }
  return a;
}

// Whether everything fits kMaxSplashBytes: three int32 arrays, their packed
// copies and a shard's lines (32 bytes a cell), and the blocks.
bool fits_file(const Grid& grid, const Blocks& blocks, const Tile& tile) {
  int64_t bytes = 0;
  return !__builtin_mul_overflow(grid.heads * 32, grid.rows, &bytes) &&
         !__builtin_mul_overflow(bytes, grid.columns, &bytes) &&
         !__builtin_add_overflow(bytes, blocks.count() * tile.q * tile.kv,
                                 &bytes) &&
         bytes <= kMaxSplashBytes;
}

// `computed`: the kernel computes the mask from positions.
SplashMaskInfo pack_info(const Grid& grid, const Blocks& blocks,
                         const Plan& plan, const SplashOptions& options,
                         bool computed) {
  const std::vector<int64_t> shape = {grid.heads, grid.rows, grid.columns};
  SplashMaskInfo info;
  info.data_next = pack(grid.data_next, shape, options.downcast);
  info.block_mask = pack(grid.block_mask, shape, options.downcast);
  if (computed) {
    std::vector<int32_t> positions(index(plan.q_len));
    std::iota(positions.begin(), positions.end(), 0);
    info.q_sequence = pack(positions, {plan.q_len}, false);
  } else if (blocks.count() > 0) {
    info.mask_next = pack(grid.mask_next, shape, options.downcast);
    info.partial_mask_blocks = pack_blocks(blocks, plan.tile, options.dkv);
  }
  return info;
}

}  // namespace

int64_t SplashArray::item_bytes() const {
  switch (type) {
    case SplashType::boolean:
    case SplashType::int8:
      return 1;
    case SplashType::int16:
      return 2;
    case SplashType::int32:
      break;
  }
  return 4;
}

int64_t SplashArray::size() const {
  return static_cast<int64_t>(bytes.size()) / item_bytes();
}

int64_t SplashArray::at(int64_t i) const {
  const uint8_t* from = bytes.data() + i * item_bytes();
  const auto load = [&]<class T>(T v) {
    std::memcpy(&v, from, sizeof(T));
    return int64_t{v};
  };
  switch (type) {
    case SplashType::boolean:
    case SplashType::int8:
      return load(int8_t{});
    case SplashType::int16:
      return load(int16_t{});
    case SplashType::int32:
      break;
  }
  return load(int32_t{});
}

namespace {

// Copies the first shard of heads to all others.
void repeat_first(int64_t shards, Grid& grid) {
  const int64_t cells = grid.rows * grid.columns;
  for (auto* a : {&grid.data_next, &grid.mask_next, &grid.block_mask}) {
    for (int64_t shard = 1; shard < shards; ++shard) {
      std::copy_n(a->begin(), cells, a->begin() + shard * cells);
    }
  }
}

}  // namespace

Result<SplashMaskInfo> make_splash(const Batch& batch, int64_t batch_row,
                                   const SplashOptions& options) {
  auto read = plan::read_batch(batch, kWhere);
  if (!read) return read.error();
  const Request& request = (*read)->request;
  const Facts& facts = (*read)->facts;
  const Plan& plan = (*read)->plan;
  const int64_t heads = options.heads == 0 ? plan.heads : options.heads;
  if (auto e = check_options(plan, batch_row, heads, options); !e) {
    return e.error();
  }
  if (options.computable) {
    if (auto e = check_computable(request, facts); !e) return e.error();
  }
  auto found =
      find_blocks(**read, batch_row, options.computable && plan.heads == 1);
  if (!found) return found.error();
  const Blocks& blocks = *found;

  const std::vector<int64_t> mask_of = find_same_masks(plan, batch_row, blocks);
  const int64_t per_plan_head = heads / plan.heads;
  const int64_t per_shard = heads / options.head_shards;
  const auto mask_of_head = [&](int64_t h) {
    return mask_of[index(h / per_plan_head)];
  };
  bool one_mask = true;            // all heads share one mask
  bool one_mask_per_shard = true;  // the heads of each shard share one mask
  for (int64_t h = 0; h < heads; ++h) {
    one_mask &= mask_of_head(h) == mask_of_head(0);
    one_mask_per_shard &=
        mask_of_head(h) == mask_of_head(h / per_shard * per_shard);
  }
  const bool shrunk = options.shrink && one_mask;
  const int64_t rows = plan.forward.rows / options.q_shards;
  const auto lines_of = [&](int64_t head_shard, int64_t q_shard) {
    std::vector<int64_t> plan_heads;
    const int64_t first = head_shard * per_shard;
    for (int64_t h = 0; h < (one_mask_per_shard ? 1 : per_shard); ++h) {
      plan_heads.push_back(mask_of_head(first + h));
    }
    return make_lines(plan, batch_row, blocks, plan_heads, q_shard * rows, rows,
                      options.dkv);
  };

  int64_t slots = options.dkv ? rows : plan.forward.columns;
  if (shrunk) {
    slots = 1;
    for (int64_t s = 0; s < options.q_shards; ++s) {
      slots = std::max(slots, lines_of(0, s).widest());
    }
  }
  Grid grid;
  grid.heads = one_mask_per_shard ? options.head_shards : heads;
  grid.rows = options.dkv ? options.q_shards * slots : plan.forward.rows;
  grid.columns = options.dkv ? plan.forward.columns : slots;
  if (!fits_file(grid, blocks, plan.tile)) return too_large();
  grid.allocate();
  for (int64_t hs = 0; hs < (one_mask ? 1 : options.head_shards); ++hs) {
    for (int64_t qs = 0; qs < options.q_shards; ++qs) {
      Place place;
      place.heads = one_mask_per_shard ? 1 : per_shard;
      place.head0 = hs * place.heads;
      place.row0 = qs * (options.dkv ? slots : rows);
      place.rows = rows;
      place.slots = slots;
      place.shrunk = shrunk;
      place.dkv = options.dkv;
      if (options.dkv && !shrunk) place.row0 = qs * rows;
      fill_shard(lines_of(hs, qs), place, grid);
    }
  }
  if (one_mask) repeat_first(options.head_shards, grid);
  return pack_info(grid, blocks, plan, options, options.computable && one_mask);
}

}  // namespace tessera
