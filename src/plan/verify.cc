// plan/verify.cc: compares lists with the plan of a request and facts.
#include "plan/verify.h"

#include <span>

#include "base/fail.h"
#include "mask/sweep.h"

namespace tessera::plan {
namespace {

// Text of a tile for errors; "no tile" after the end of a row.
std::string tile_text(const Entry* entry) {
  if (entry == nullptr) return "no tile";
  return fmt::format(
      "column {} {}", entry->column(),
      entry->tile_class() == TileClass::full ? "full" : "partial");
}

// The first tile where a row differs from its spans, as "found X for Y".
struct Difference {
  bool any = false;
  std::string found;
  std::string due;
};

Difference compare(std::span<const Entry> row,
                   const std::vector<mask::Span>& spans) {
  size_t at = 0;
  for (const mask::Span& s : spans) {
    for (int32_t c = s.begin; c < s.end; ++c, ++at) {
      const Entry due = Entry::of(c, s.tile_class);
      if (at < row.size() && row[at] == due) continue;
      return {true, tile_text(at < row.size() ? &row[at] : nullptr),
              tile_text(&due)};
    }
  }
  if (at < row.size()) return {true, tile_text(&row[at]), tile_text(nullptr)};
  return {};
}

}  // namespace

Result<Verified> verify_forward(const Request& request, const Facts& facts,
                                const Worklist& forward,
                                std::string_view where) {
  auto sweep = mask::start_sweep(request, facts);
  if (!sweep) return sweep.error();
  const int64_t lists = sweep->lists();
  const int64_t rows = sweep->rows();
  const int64_t columns = sweep->columns();
  if (forward.lists != lists || forward.rows != rows ||
      forward.columns != columns) {
    return invalid(where,
                   "lists must be {} of {} rows and {} columns, found {} of {} "
                   "and {}",
                   lists, rows, columns, forward.lists, forward.rows,
                   forward.columns);
  }

  Verified out;
  out.heads = sweep->bound.heads;
  out.meaning = sweep->bound.meaning;
  out.warnings = std::move(sweep->bound.warnings);
  out.legal_pairs.reserve(static_cast<size_t>(lists));
  auto walked = sweep->each_list([&](mask::Classifier& list, int64_t b,
                                     int64_t h) -> Result<void> {
    int64_t pairs = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const std::vector<mask::Span>& spans = list.tile_row(r);
      const Difference d = compare(forward.row(b * out.heads + h, r), spans);
      if (d.any) {
        return invalid(where,
                       "lists must be those that the request and facts "
                       "plan to, found {} where {} is due, in tile row {} "
                       "of batch row {}, head {}",
                       d.found, d.due, r, b, h);
      }
      for (const mask::Span& s : spans) pairs += s.pairs * (s.end - s.begin);
    }
    out.legal_pairs.push_back(pairs);
    return {};
  });
  if (!walked) return walked.error();
  return out;
}

}  // namespace tessera::plan
