// cli/request/documents.cc: where packed documents come from.
#include "cli/request/documents.h"

#include <algorithm>
#include <string>

#include "base/fail.h"
#include "base/files.h"
#include "base/npy.h"
#include "base/text.h"
#include "cli/numbers.h"
#include "cli/request/drawn_documents.h"
#include "tessera/facts.h"
#include "tessera/plan.h"

namespace tessera::cli {
namespace {

using Ids = std::vector<int32_t>;

Result<Ids> ids_from_lengths(Ints lengths, std::string_view what,
                             int64_t length) {
  Ids ids(static_cast<size_t>(length), -1);
  int64_t at = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] > length - at) {
      return invalid("docs",
                     "{} must fit the row of {} tokens, found {} after "
                     "{} for document {}",
                     what, length, lengths[i], at, i);
    }
    std::fill_n(ids.begin() + at, lengths[i], static_cast<int32_t>(i));
    at += lengths[i];
  }
  return ids;
}

Result<Ids> ids_from_boundaries(Ints bounds, std::string_view, int64_t length) {
  return ids_from_cu_seqlens(bounds, length);
}

Result<Ids> ids_from_positions(Ints positions, std::string_view what,
                               int64_t length) {
  if (static_cast<int64_t>(positions.size()) != length) {
    return invalid("docs",
                   "{} must hold a position for each of {} tokens of a "
                   "row, found {}",
                   what, length, positions.size());
  }
  return ids_from_position_ids(positions);
}

// What the numbers of a row are.
struct Numbers {
  std::string_view prefix;  // of a source
  std::string_view all, one;
  int64_t least;
  Result<Ids> (*ids)(Ints numbers, std::string_view what, int64_t length);
};
constexpr Numbers kLengths = {"lengths:", "lengths", "length", 1,
                              ids_from_lengths};
constexpr Numbers kBoundaries = {"cu_seqlens:", "cu_seqlens", "boundary", 0,
                                 ids_from_boundaries};
constexpr Numbers kPositions = {"position_ids:", "position_ids", "position", 0,
                                ids_from_positions};

Result<Ids> repeat(Result<Ids> row, int64_t batch) {
  if (!row || batch == 1) return row;
  std::vector<int32_t> all;
  all.reserve(row->size() * static_cast<size_t>(batch));
  for (int64_t b = 0; b < batch; ++b) {
    all.insert(all.end(), row->begin(), row->end());
  }
  return all;
}

bool is_npy(const std::string& path, std::string_view bytes) {
  return path.ends_with(".npy") || bytes.starts_with("\x93NUMPY");
}

Result<Ids> read_npy(const std::string& path, std::string_view bytes,
                     int64_t batch, int64_t length) {
  auto npy = parse_npy(bytes);
  if (!npy) return npy.error();
  using Shape = std::vector<int64_t>;
  if (npy->shape == Shape{batch, length}) return std::move(npy->values);
  if (npy->shape == Shape{length}) return repeat(npy->values, batch);
  return invalid("docs", "{} must have shape [{}] or [{}, {}], found [{}]",
                 in_quotes(path), length, batch, length,
                 fmt::join(npy->shape, ", "));
}

Result<Ids> ids_of_rows(const std::vector<Ids>& rows, const Numbers& numbers,
                        const std::string& path, int64_t length) {
  Ids all;
  for (const Ids& row : rows) {
    auto ids = numbers.ids(row, path, length);
    if (!ids) return ids;
    all.insert(all.end(), ids->begin(), ids->end());
  }
  return all;
}

// [n], for every batch row, or [batch, n].
Result<Ids> read_npy_numbers(const std::string& path, std::string_view bytes,
                             const Numbers& numbers, int64_t batch,
                             int64_t length) {
  auto npy = parse_npy(bytes);
  if (!npy) return npy.error();
  const std::vector<int64_t>& shape = npy->shape;
  if (shape.size() == 1) {
    return repeat(numbers.ids(npy->values, path, length), batch);
  }
  if (shape.size() != 2 || shape[0] != batch) {
    return invalid("docs", "{} must have shape [n] or [{}, n], found [{}]",
                   in_quotes(path), batch, fmt::join(shape, ", "));
  }
  std::vector<Ids> rows;
  for (int64_t b = 0; b < batch; ++b) {
    const auto first = npy->values.begin() + b * shape[1];
    rows.emplace_back(first, first + shape[1]);
  }
  return ids_of_rows(rows, numbers, path, length);
}

// Numbers, any number a line; a blank line ends a batch row.
Result<Ids> read_text(const std::string& path, std::string_view text,
                      const Numbers& numbers, int64_t batch, int64_t length) {
  std::vector<Ids> rows;
  Ids row;
  auto end_row = [&] {
    if (!row.empty()) rows.push_back(std::move(row));
    row.clear();
  };
  int64_t number = 0;
  for (std::string_view line : split(text, '\n')) {
    ++number;
    const std::string_view content = trim(line.substr(0, line.find('#')));
    if (content.empty()) {
      // A comment alone is no blank line.
      if (trim(line).empty()) end_row();
      continue;
    }
    for (size_t at = 0; at < content.size();) {
      const size_t begin = content.find_first_not_of(" \t,", at);
      if (begin == std::string_view::npos) break;
      at = std::min(content.find_first_of(" \t,", begin), content.size());
      auto n = parse_int(content.substr(begin, at - begin),
                         fmt::format("{}:{}: a {}", path, number, numbers.one),
                         numbers.least, kMaxTokens);
      if (!n) return n.error();
      row.push_back(static_cast<int32_t>(*n));
    }
  }
  end_row();
  if (static_cast<int64_t>(rows.size()) != batch) {
    return invalid("docs",
                   "{} must hold a row of {} for each of {} batch rows, "
                   "found {}",
                   in_quotes(path), numbers.all, batch, rows.size());
  }
  return ids_of_rows(rows, numbers, path, length);
}

// No file is called so.
bool is_list(std::string_view text) {
  return text.find_first_not_of("0123456789,+- ") == std::string_view::npos;
}

// `rest` is a list or, but for lengths, a file.
Result<Ids> read_numbers(const std::string& rest, std::string_view what,
                         const Numbers& numbers, int64_t batch,
                         int64_t length) {
  if (numbers.prefix == kLengths.prefix || is_list(rest)) {
    auto values = parse_ints(rest, fmt::format("{} {}", what, numbers.all),
                             numbers.least, kMaxTokens);
    if (!values) return values;
    return repeat(numbers.ids(*values, what, length), batch);
  }
  auto bytes = read_file(rest, kMaxFactBytes);
  if (!bytes) return bytes.error();
  return is_npy(rest, *bytes)
             ? read_npy_numbers(rest, *bytes, numbers, batch, length)
             : read_text(rest, *bytes, numbers, batch, length);
}

}  // namespace

std::string_view document_file(std::string_view source) {
  for (const Numbers& numbers : {kBoundaries, kPositions}) {
    if (take_prefix(source, numbers.prefix)) break;
  }
  return source;
}

Result<Ids> read_documents(std::string_view source, std::string_view what,
                           int64_t batch, int64_t length) {
  std::string_view rest = source;
  if (source == "lognormal") return draw_documents("", what, batch, length);
  if (take_prefix(rest, "lognormal:"))
    return draw_documents(rest, what, batch, length);
  for (const Numbers& numbers : {kLengths, kBoundaries, kPositions}) {
    if (take_prefix(rest, numbers.prefix)) {
      return read_numbers(std::string(rest), what, numbers, batch, length);
    }
  }
  const std::string path(source);
  auto bytes = read_file(path, kMaxFactBytes);
  if (!bytes) return bytes.error();
  return is_npy(path, *bytes)
             ? read_npy(path, *bytes, batch, length)
             : read_text(path, *bytes, kLengths, batch, length);
}

}  // namespace tessera::cli
