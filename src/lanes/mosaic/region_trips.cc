// lanes/mosaic/region_trips.cc: counts passes as the kernels walk them.
//
// Forward, the scores of the first pass are made before the loop, masked; the
// softmax of the last pass, and the last row's end, come after it. Backward,
// every pass is one trip. In a call in parts (shards.h), which regions run for
// a row depends on whether another call has the row too.
#include "lanes/mosaic/region_trips.h"

#include <algorithm>
#include <span>

#include "lanes/mosaic/kernel_steps.h"
#include "lanes/mosaic/shape.h"
#include "lanes/mosaic/shard_steps.h"
#include "plan/batch_state.h"

namespace tessera::mosaic {
namespace {

schedule::TripRule rule(const char* region, int64_t trips) {
  return {region, static_cast<double>(trips)};
}

schedule::TripRule rule_of(schedule::RegionKind kind, const char* region,
                           int64_t trips) {
  return {region, static_cast<double>(trips), {}, kind};
}

schedule::TripRule rule_inside(const char* outer, const char* region,
                               int64_t trips) {
  return {region, static_cast<double>(trips), {}, {}, outer};
}

schedule::TripRule rule_outside(const char* outer, const char* region,
                                int64_t trips) {
  return {region, static_cast<double>(trips), {}, {}, {}, outer};
}

// Names the kind, because a branch called "pass" surrounds the loop.
schedule::TripRule pass_rule(int64_t trips) {
  return rule_of(schedule::RegionKind::loop, "pass", trips);
}

// The rule of a pass's fetch. If the compiler makes no branch of it, its ops
// may give the loop its name.
schedule::TripRule fetch_rule(int64_t trips, int64_t passes) {
  return {"fetch", static_cast<double>(trips), static_cast<double>(passes)};
}

// Whether the kernel is one of several calls, and a later one (shape.h).
struct CallKind {
  bool in_parts = false, late = false;
};

// Counts of a list for one head.
struct ListCounts {
  int64_t passes = 0;
  int64_t full = 0;           // passes of full tiles alone
  std::vector<bool> is_full;  // each pass
  int64_t rows = 0;
  int64_t pages = 0;        // that the kernel loads, empty ones too
  int64_t first_fetch = 0;  // backward: passes fetched where a page begins
  int64_t first_bits = 0;   // of these, passes that are not full
  bool first_is_full = false;
  int64_t cleaned = 0;  // passes with keys that a veto takes
  bool first_is_cleaned = false;
  // Forward, in a call in parts: rows that an earlier call had, rows that no
  // later call has, and whether the last row is such a row.
  int64_t resumed = 0, sent = 0;
  bool last_is_resumed = false, last_is_sent = false;
};

// The `rows` words of a list, or of a chunk of it, in a call in parts
// (shape.h); empty for other kernels.
using RowWords = std::span<const int32_t>;

// Counts the row of a forward pass in a call in parts.
void count_row(std::span<const Step> pass, RowWords rows, ListCounts& out) {
  const Step first = pass.front();
  const int32_t word = rows[static_cast<size_t>(kRowsHead + first.row())];
  out.last_is_resumed = first.first() && (word & kRowBegins) == 0;
  out.resumed += out.last_is_resumed;
  out.last_is_sent = pass.back().last() && (word & kRowEnds) != 0;
  out.sent += out.last_is_sent;
}

ListCounts count_list(std::span<const Step> steps, int64_t tiles,
                      RowWords rows = {}) {
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
    if (!rows.empty()) count_row(pass, rows, out);
  }
  return out;
}

// Rules of rows in a call in parts: an early call leaves the sums of rows that
// a late call continues, which resumes them. Regions of one name are told apart
// by the region around them.
void add_row_trips(const ListCounts& n, int64_t heads, bool late,
                   std::vector<schedule::TripRule>& out) {
  if (late) {
    using schedule::RegionKind;
    auto in_loop =
        rule_inside("pass", "resume", heads * n.resumed - n.last_is_resumed);
    auto behind = rule_outside("pass", "resume", n.last_is_resumed);
    in_loop.kind = behind.kind = RegionKind::branch;
    out.insert(out.end(), {in_loop, behind});
    // The loop over passes may be named for "resume", if most ops are of it.
    out.push_back(rule_of(RegionKind::loop, "resume", heads * n.passes - 1));
    return;
  }
  const bool leaves = !n.last_is_sent;
  out.push_back(
      rule_inside("finish", "finish", heads * n.sent - n.last_is_sent));
  out.push_back(
      rule_inside("finish", "leave", heads * (n.rows - n.sent) - leaves));
  out.push_back(rule("last_finish", n.last_is_sent));
  out.push_back(rule_outside("finish", "leave", leaves));
}

std::vector<schedule::TripRule> forward_trips(const ListCounts& n,
                                              const MosaicKernel& kernel,
                                              const CallKind& call) {
  // Groups of heads that a pass takes at once.
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
      rule_outside("finish", "finish", heads * n.rows - 1),
  };
  if (call.in_parts) add_row_trips(n, heads, call.late, out);
  // Counts no repairs, as if all numbers were finite.
  if (kernel.options.numbers == Numbers::any) {
    out.push_back(rule("first_repair", 0));
    out.push_back(rule("repair", 0));
  }
  if (kernel.page > 0) out.push_back(rule("page", 1));
  if (kernel.bitmaps == 0) return out;
  // Bitmaps are fetched for passes that are not full, and for the first pass.
  int64_t first = 0;
  for (int64_t pass = 0; pass < ahead; ++pass) {
    first += pass == 0 || !n.is_full[static_cast<size_t>(pass % n.passes)];
  }
  out.push_back(rule("first_bits", first));
  out.push_back(rule("bits", passes - in_full - first));
  return out;
}

// Groups of heads that a list's passes take at once: all, and those with the
// first of the heads that share keys. Over all lists as many groups have the
// last such head, and lists have equal columns, so sums use `of_keys` for both.
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

// Backward, tiles of queries: all, those whose sums begin in this call, those
// whose sums end in it.
struct RowCounts {
  int64_t all = 0, begun = 0, sent = 0;
};
RowCounts count_rows(RowWords words) {
  RowCounts out = {words[0], 0, 0};
  for (const int32_t word :
       words.subspan(kRowsHead, static_cast<size_t>(out.all))) {
    out.begun += (word & kRowBegins) != 0;
    out.sent += (word & kRowEnds) != 0;
  }
  return out;
}

// Rules of the loops over a head's rows, and of the branches in them.
void add_row_trips(const RowCounts& rows, int64_t heads, bool in_parts,
                   std::vector<schedule::TripRule>& out) {
  using schedule::RegionKind;
  if (!in_parts) {
    out.push_back(rule("prepare", heads * rows.all));
    out.push_back(rule("finish_row", heads * rows.all));
    return;
  }
  out.push_back(rule_of(RegionKind::loop, "prepare", heads * rows.all));
  out.push_back(rule_of(RegionKind::branch, "prepare", heads * rows.begun));
  out.push_back(rule_of(RegionKind::loop, "finish_row", heads * rows.all));
  out.push_back(rule_of(RegionKind::branch, "finish_row", heads * rows.sent));
  out.push_back(rule("wait_left", heads * (rows.all - rows.sent)));
}

// Rules of a backward list, or of a chunk of it.
std::vector<schedule::TripRule> backward_trips(const ListCounts& n,
                                               const RowCounts& of_rows,
                                               const PassHeads& of,
                                               const MosaicKernel& kernel,
                                               const CallKind& call) {
  const auto [heads, kv_heads] = of;
  const int64_t rows = of_rows.all;
  const int64_t columns = n.rows;  // of the transposed list
  const int64_t ahead = std::min(columns, kernel.options.fetch_ahead);
  const int64_t first_rows = std::min(rows, rows_ahead(kernel.heads_per_pass));
  std::vector<schedule::TripRule> out = {
      rule("batch_row", 1),
      rule("head", heads),
      rule("first_columns", heads * ahead),
      rule("first_rows", heads * first_rows),
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
  };
  add_row_trips(of_rows, heads, call.in_parts, out);
  if (call.in_parts || kernel.query_chunk > 0) {
    out.push_back(rule("wait_rows", heads * std::min(of_rows.sent, kOutRing)));
  }
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

// Rules for the sums of a chunk's columns: they begin at 0 if no earlier chunk
// or head has the column, and go out as gradients if no later one has it.
void add_chunk_trips(const ChunkColumns& chunk, bool is_first,
                     const PassHeads& heads, const MosaicKernel& kernel,
                     std::vector<schedule::TripRule>& out) {
  const int64_t columns = chunk.end - chunk.first;
  // A call's columns may begin after 0, which is `begins` of chunk 0.
  const int64_t met =
      std::clamp(chunk.begins, chunk.first, chunk.end) - chunk.first;
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
}

// Counts of a list, summed over its pages.
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

// Adds the rules of one list; every list has the same regions.
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

// All tiles of queries of a chunk, or of a list without chunks.
RowCounts rows_of_chunk(const MosaicKernel& kernel, int64_t chunk) {
  int64_t queries = kernel.q_len;
  if (kernel.query_chunk > 0) {
    queries =
        std::min(kernel.query_chunk, kernel.q_len - chunk * kernel.query_chunk);
  }
  const int64_t rows = queries / kernel.tile.q;
  return {rows, rows, rows};
}

// A call's steps and, in a call in parts, its rows, by list or by chunk.
struct CallLists {
  const Steps& steps;
  RowWords rows = {};
  CallKind kind = {};

  RowWords rows_of(size_t list) const {
    const size_t each = rows.size() / (steps.range.size() - 1);
    return rows.subspan(list * each, each);
  }
};

// Rules of a list, or of a chunk of it, whose pages these are.
std::vector<schedule::TripRule> chunk_trips(const CallLists& call, size_t at,
                                            std::span<const StepRange> pages,
                                            const MosaicKernel& kernel) {
  const auto chunks = static_cast<size_t>(chunks_of(kernel));
  const auto chunk = static_cast<int64_t>(at % chunks);
  const RowCounts rows = call.kind.in_parts ? count_rows(call.rows_of(at))
                                            : rows_of_chunk(kernel, chunk);
  const PassHeads heads =
      pass_heads(kernel, static_cast<int64_t>(at / chunks) % kernel.plan_heads);
  const ListCounts counts =
      count_pages(call.steps.steps, pages, kernel.options.tiles_per_pass);
  auto out = backward_trips(counts, rows, heads, kernel, call.kind);
  if (kernel.query_chunk > 0) {
    add_chunk_trips(chunk_columns(call.steps, at, chunks), chunk == 0, heads,
                    kernel, out);
  }
  return out;
}

Result<std::vector<schedule::TripRule>> trips_of(const CallLists& call,
                                                 const MosaicKernel& kernel) {
  std::vector<schedule::TripRule> out;
  auto pages = page_ranges(call.steps, kernel);
  if (!pages) return pages.error();
  const bool backward = kernel.call.backward;
  const auto of_list = static_cast<size_t>(pages_of_list(kernel));
  for (size_t n = 0; n < pages->size(); n += backward ? of_list : 1) {
    const StepRange& page = (*pages)[n];
    if (page.begin == page.end) continue;
    if (backward) {
      const auto list = std::span(*pages).subspan(n, of_list);
      add(chunk_trips(call, n / of_list, list, kernel), out);
    } else {
      const auto own = std::span(call.steps.steps)
                           .subspan(page.begin, page.end - page.begin);
      const ListCounts counts = count_list(
          own, kernel.options.tiles_per_pass,
          call.kind.in_parts ? call.rows_of(n / of_list) : RowWords());
      add(forward_trips(counts, kernel, call.kind), out);
    }
  }
  // In a call without a step nothing runs.
  if (out.empty()) out = {rule("batch_row", 0)};
  // The loop over lists or pages counts in a register that the compiler may
  // spill, so a dump does not show where it ends. One list or page needs no
  // loop.
  const int64_t grid = kernel.batch * kernel.plan_heads *
                       (backward ? 1 : static_cast<int64_t>(of_list));
  if (grid > 1) out.push_back(rule("grid", grid));
  return out;
}

}  // namespace

Result<std::vector<schedule::TripRule>> region_trips(
    const Batch& batch, const MosaicKernel& kernel) {
  auto read = plan::read_batch(batch, "mosaic");
  if (!read) return read.error();
  auto packed = kernel_steps((*read)->sweep.bound, (*read)->plan, kernel);
  if (!packed) return packed.error();
  return trips_of({*packed}, kernel);
}

Result<std::vector<std::vector<schedule::TripRule>>> call_trips(
    const Batch& batch, const Shards& shards, size_t index,
    const ShardKernel& kernel) {
  auto read = plan::read_batch(batch, "mosaic");
  if (!read) return read.error();
  std::vector<Turn> turns;
  for (const ShardCall& c : kernel.calls) turns.push_back(c.turn);
  auto calls = steps_of_calls(batch, vetoed_tiles((*read)->sweep.bound), shards,
                              index, kernel.planned.kernel, turns);
  if (!calls) return calls.error();
  std::vector<std::vector<schedule::TripRule>> out;
  for (size_t c = 0; c < calls->size(); ++c) {
    const CallSteps& own = (*calls)[c];
    const PlannedKernel& planned = kernel.calls[c].kernel;
    auto trips = trips_of(
        {own.steps, own.rows, {planned.shape.in_parts, planned.shape.late}},
        planned.kernel);
    if (!trips) return trips.error();
    out.push_back(std::move(*trips));
  }
  return out;
}

}  // namespace tessera::mosaic
