// lanes/mosaic/region_trips.cc: counts passes as the kernels walk them.
//
// Forward, the scores of the first pass are made before the loop, masked; the
// softmax of the last pass, and the last row's end, come after it. Backward,
// every pass is one trip.
#include "lanes/mosaic/region_trips.h"

#include <algorithm>
#include <span>

#include "lanes/mosaic/kernel_steps.h"
#include "lanes/mosaic/shape.h"
#include "plan/batch_state.h"

namespace tessera::mosaic {
namespace {

schedule::TripRule rule(const char* region, int64_t trips) {
  return {region, static_cast<double>(trips)};
}

schedule::TripRule pass_rule(int64_t trips) {
  return {"pass", static_cast<double>(trips), {}, true};
}

// Of a pass's fetch: where that is no branch, its ops may name the loop.
schedule::TripRule fetch_rule(int64_t trips, int64_t passes) {
  return {"fetch", static_cast<double>(trips), static_cast<double>(passes)};
}

// What the list says of one head.
struct ListCounts {
  int64_t passes = 0;
  int64_t full = 0;           // passes of full tiles alone
  std::vector<bool> is_full;  // each pass
  int64_t rows = 0;
  int64_t pages = 0;        // that the steps came in; with them 1 at least
  int64_t first_fetch = 0;  // backward: passes fetched where a page begins
  int64_t first_bits = 0;   // of them not full
  bool first_is_full = false;
  int64_t cleaned = 0;  // passes with keys that a veto takes
  bool first_is_cleaned = false;
};

ListCounts count_list(std::span<const Step> steps, int64_t tiles) {
  ListCounts out;
  const auto size = static_cast<size_t>(tiles);
  for (size_t at = 0; at < steps.size(); at += size) {
    const auto pass = steps.subspan(at, size);
    const bool all_full =
        std::ranges::all_of(pass, [](Step s) { return s.step_class() == 2; });
    const bool cleaned =
        std::ranges::any_of(pass, [](Step s) { return s.step_class() == 3; });
    ++out.passes;
    out.full += all_full;
    out.is_full.push_back(all_full);
    out.cleaned += cleaned;
    if (at == 0) {
      out.first_is_full = all_full;
      out.first_is_cleaned = cleaned;
    }
    out.rows += pass.back().last();
  }
  return out;
}

std::vector<schedule::TripRule> forward_trips(const ListCounts& n,
                                              const MosaicKernel& kernel) {
  // A pass takes several at once.
  const int64_t heads =
      kernel.call.shape.heads / kernel.plan_heads / kernel.heads_per_pass;
  const int64_t passes = heads * n.passes;
  const int64_t ahead = std::min(passes, kernel.options.fetch_ahead);
  const int64_t in_full = heads * n.full - n.first_is_full;
  std::vector<schedule::TripRule> out = {
      rule("batch_row", 1),
      rule("first_fetch", ahead),
      pass_rule(passes - 1),
      fetch_rule(passes - ahead, passes - 1),
      rule("first_clean", n.first_is_cleaned),
      rule("clean", heads * n.cleaned - n.first_is_cleaned),
      rule("full", in_full),
      rule("partial", passes - 1 - in_full),
      rule("finish", heads * n.rows - 1),
  };
  // No repair runs: numbers count as finite.
  if (kernel.options.numbers == Numbers::any) {
    out.push_back(rule("first_repair", 0));
    out.push_back(rule("repair", 0));
  }
  if (kernel.page > 0) out.push_back(rule("page", 1));
  if (kernel.bitmaps == 0) return out;
  // Of passes that are not full, and of the first.
  int64_t first = 0;
  for (int64_t pass = 0; pass < ahead; ++pass) {
    first += pass == 0 || !n.is_full[static_cast<size_t>(pass % n.passes)];
  }
  out.push_back(rule("first_bits", first));
  out.push_back(rule("bits", passes - in_full - first));
  return out;
}

// Of a list's passes, with as many heads as each takes at once: all, and those
// with the first of the heads that share keys. Over all lists as many passes
// have the last such head, and lists have equal columns: sums use it for both.
struct PassHeads {
  int64_t all = 0, of_keys = 0;
};
PassHeads pass_heads(const MosaicKernel& kernel, int64_t plan_head) {
  const AttentionShape& shape = kernel.call.shape;
  const int64_t group = shape.heads / shape.kv_heads;
  const int64_t own = shape.heads / kernel.plan_heads;
  PassHeads out;
  for (int64_t n = 0; n < own; n += kernel.heads_per_pass) {
    ++out.all;
    out.of_keys += (plan_head * own + n) % group == 0;
  }
  return out;
}

// Backward, of all rows or those of a chunk.
std::vector<schedule::TripRule> backward_trips(const ListCounts& n,
                                               int64_t rows,
                                               const PassHeads& of,
                                               const MosaicKernel& kernel) {
  const auto [heads, kv_heads] = of;
  const int64_t columns = n.rows;  // of the transposed list
  const int64_t ahead = std::min(columns, kernel.options.fetch_ahead);
  const int64_t first_rows = std::min(rows, rows_ahead(kernel.heads_per_pass));
  std::vector<schedule::TripRule> out = {
      rule("batch_row", 1),
      rule("head", heads),
      rule("first_columns", heads * ahead),
      rule("first_rows", heads * first_rows),
      rule("prepare", heads * rows),
      rule("fetch_row", heads * (rows - first_rows)),
      rule("first_fetch", heads * n.first_fetch),
      pass_rule(heads * n.passes),
      fetch_rule(heads * (n.passes - n.first_fetch), heads * n.passes),
      rule("fetch_column", heads * (columns - ahead)),
      rule("column", heads * columns),
      rule("clear", kv_heads * columns),
      rule("full", heads * n.full),
      rule("partial", heads * (n.passes - n.full)),
      rule("finish_column", kv_heads * columns),
      rule("finish_row", heads * rows),
  };
  if (kernel.options.numbers == Numbers::any) {
    out.push_back(rule("repair", 0));
    out.push_back(rule("masked", heads * (n.passes - n.full)));
    out.push_back(rule("spoiled", 0));
  }
  if (kernel.page > 0) out.push_back(rule("page", heads * n.pages));
  if (kernel.bitmaps == 0) return out;
  const int64_t first = heads * n.first_bits;
  out.push_back(rule("first_bits", first));
  out.push_back(rule("bits", heads * (n.passes - n.full) - first));
  return out;
}

// Of a list's chunk what becomes of its columns' sums: those that no chunk and
// no head before has begin at 0, those that none after has go out whole.
void add_chunk_trips(const ChunkColumns& chunk, int64_t rows, bool is_first,
                     const PassHeads& heads, const MosaicKernel& kernel,
                     std::vector<schedule::TripRule>& out) {
  const int64_t columns = chunk.end - chunk.first;
  const int64_t met = std::min(chunk.begins, chunk.end) - chunk.first;
  const int64_t whole = std::min(chunk.ends, chunk.end) - chunk.first;
  const int64_t ahead = std::min(columns, kernel.options.fetch_ahead);
  const auto waited = [&](int64_t all, int64_t begun) {
    return heads.all * all - heads.of_keys * (all - begun);
  };
  const int64_t first = waited(ahead, std::min(met, ahead));
  const auto set = [&](const char* region, int64_t trips) {
    std::ranges::find(out, region, &schedule::TripRule::region)->trips =
        static_cast<double>(trips);
  };
  set("clear", heads.of_keys * (columns - met));
  set("finish_column", heads.of_keys * whole);
  set("batch_row", is_first);
  out.push_back(rule("heads", is_first ? heads.all : 0));
  out.push_back(rule("chunk", heads.all));
  out.push_back(rule("first_sums", first));
  out.push_back(rule("fetch_sums", waited(columns, met) - first));
  out.push_back(rule("wait_sums", waited(columns, met)));
  out.push_back(rule("send_sums", heads.all * columns - heads.of_keys * whole));
  out.push_back(rule("wait_rows", heads.all * std::min(rows, kOutRing)));
}

// A list's pages, one after another.
ListCounts count_pages(std::span<const Step> steps,
                       std::span<const StepRange> pages, int64_t tiles) {
  ListCounts out;
  for (const StepRange& page : pages) {
    const ListCounts own =
        count_list(steps.subspan(page.begin, page.end - page.begin), tiles);
    const int64_t ahead = std::min(own.passes, kPassesAhead);
    out.first_fetch += ahead;
    out.first_bits +=
        std::count(own.is_full.begin(), own.is_full.begin() + ahead, false);
    out.passes += own.passes;
    out.full += own.full;
    out.rows += own.rows;
    ++out.pages;
  }
  return out;
}

// A list after another walks the same regions.
void add(const std::vector<schedule::TripRule>& row,
         std::vector<schedule::TripRule>& sum) {
  if (sum.empty()) {
    sum = row;
    return;
  }
  for (size_t i = 0; i < row.size(); ++i) {
    sum[i].trips += row[i].trips;
    if (row[i].as_loop) *sum[i].as_loop += *row[i].as_loop;
  }
}

}  // namespace

Result<std::vector<schedule::TripRule>> region_trips(
    const Batch& batch, const MosaicKernel& kernel) {
  auto read = plan::read_batch(batch, "mosaic");
  if (!read) return read.error();
  auto packed = kernel_steps((*read)->sweep.bound, (*read)->plan, kernel);
  if (!packed) return packed.error();
  const std::vector<Step>& steps = packed->steps;
  std::vector<schedule::TripRule> out;
  auto pages = page_ranges(*packed, kernel);
  if (!pages) return pages.error();
  const bool backward = kernel.call.backward;
  const auto of_list = static_cast<size_t>(pages_of_list(kernel));
  const int64_t tiles = kernel.options.tiles_per_pass;
  const auto chunks = static_cast<size_t>(chunks_of(kernel));
  for (size_t n = 0; n < pages->size(); n += backward ? of_list : 1) {
    const StepRange& page = (*pages)[n];
    if (page.begin == page.end) continue;
    if (backward) {
      const auto list = std::span(*pages).subspan(n, of_list);
      const size_t at = n / of_list;
      const auto chunk = static_cast<int64_t>(at % chunks);
      int64_t queries = kernel.q_len;
      if (kernel.query_chunk > 0) {
        queries = std::min(kernel.query_chunk,
                           kernel.q_len - chunk * kernel.query_chunk);
      }
      const int64_t rows = queries / kernel.tile.q;
      const PassHeads heads = pass_heads(
          kernel, static_cast<int64_t>(at / chunks) % kernel.plan_heads);
      auto own =
          backward_trips(count_pages(steps, list, tiles), rows, heads, kernel);
      if (kernel.query_chunk > 0) {
        add_chunk_trips(chunk_columns(*packed, at, chunks), rows, chunk == 0,
                        heads, kernel, own);
      }
      add(own, out);
    } else {
      const auto own =
          std::span(steps).subspan(page.begin, page.end - page.begin);
      add(forward_trips(count_list(own, tiles), kernel), out);
    }
  }
  // The loop over lists, or pages, counts in a register that the compiler
  // may spill, so that a dump does not tell where it ends; one needs no loop.
  const int64_t grid = kernel.batch * kernel.plan_heads *
                       (backward ? 1 : static_cast<int64_t>(of_list));
  if (grid > 1) out.push_back(rule("grid", grid));
  return out;
}

}  // namespace tessera::mosaic
