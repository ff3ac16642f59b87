// plan/verify.cc: are these the lists that a request and its facts plan to?
#include "plan/verify.h"

#include <span>

#include "base/fail.h"
#include "mask/bind.h"
#include "mask/classify.h"
#include "mask/program.h"

namespace tessera {
namespace {

int64_t ceil_div(int64_t a, int64_t n) { return (a + n - 1) / n; }

// A tile of a row, for errors; "no tile" where the row has ended.
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

Difference compare(std::span<const Entry> row, const std::vector<Span>& spans) {
  size_t at = 0;
  for (const Span& s : spans) {
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
  auto bound = bind(request, facts);
  if (!bound) return bound.error();
  std::vector<Program> programs;
  for (const Mask& mask : request.masks) {
    auto program = compile(mask);
    if (!program) return program.error();
    programs.push_back(std::move(*program));
  }

  const int64_t lists = bound->batch * bound->heads;
  const int64_t rows = ceil_div(bound->q_len, bound->tile.q);
  const int64_t columns = ceil_div(bound->kv_len, bound->tile.kv);
  if (forward.lists != lists || forward.rows != rows ||
      forward.columns != columns) {
    return invalid(where,
                   "lists must be {} of {} rows and {} columns, found {} of {} "
                   "and {}",
                   lists, rows, columns, forward.lists, forward.rows,
                   forward.columns);
  }

  Verified out;
  out.heads = bound->heads;
  out.warnings = std::move(bound->warnings);
  out.legal_pairs.assign(static_cast<size_t>(lists), 0);
  Classifier classifier(*bound);
  const auto groups = static_cast<int64_t>(programs.size());
  for (int64_t b = 0; b < bound->batch; ++b) {
    classifier.begin_batch_row(b);
    for (int64_t h = 0; h < bound->heads; ++h) {
      const int64_t list = b * bound->heads + h;
      int64_t& pairs = out.legal_pairs[static_cast<size_t>(list)];
      classifier.begin_list(
          programs[static_cast<size_t>(h * groups / bound->heads)], h);
      for (int64_t r = 0; r < rows; ++r) {
        const std::vector<Span>& spans = classifier.tile_row(r);
        const Difference d = compare(forward.row(list, r), spans);
        if (d.any) {
          return invalid(where,
                         "lists must be those that the request and facts plan "
                         "to, found {} where {} is due, in tile row {} of "
                         "batch row {}, head {}",
                         d.found, d.due, r, b, h);
        }
        for (const Span& s : spans) pairs += s.pairs * (s.end - s.begin);
      }
    }
  }
  return out;
}

}  // namespace tessera
