// request/document_numbers.cc: converts numbers, from text or an array, to ids.
#include "request/document_numbers.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "base/npy.h"
#include "base/text.h"
#include "request/numbers.h"
#include "tessera/plan.h"

namespace tessera::request {
namespace {

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

Result<Ids> ids_of_rows(const std::vector<Ids>& rows,
                        const DocumentNumbers& numbers, const std::string& path,
                        int64_t length) {
  Ids all;
  for (const Ids& row : rows) {
    auto ids = numbers.ids(row, path, length);
    if (!ids) return ids;
    all.insert(all.end(), ids->begin(), ids->end());
  }
  return all;
}

}  // namespace

const DocumentNumbers kLengths = {"lengths:", "lengths", "length", 1,
                                  ids_from_lengths};
const DocumentNumbers kBoundaries = {"cu_seqlens:", "cu_seqlens", "boundary", 0,
                                     ids_from_boundaries};
const DocumentNumbers kPositions = {"position_ids:", "position_ids", "position",
                                    0, ids_from_positions};

Result<Ids> repeat(Result<Ids> row, int64_t batch) {
  if (!row || batch == 1) return row;
  std::vector<int32_t> all;
  all.reserve(row->size() * static_cast<size_t>(batch));
  for (int64_t b = 0; b < batch; ++b) {
    all.insert(all.end(), row->begin(), row->end());
  }
  return all;
}

Result<Ids> read_npy_numbers(const std::string& path, std::string_view bytes,
                             const DocumentNumbers& numbers, int64_t batch,
                             int64_t length) {
  auto npy = parse_npy(bytes);
  if (!npy) return in_file(npy.error(), path);
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

Result<Ids> read_text_numbers(const std::string& path, std::string_view text,
                              const DocumentNumbers& numbers, int64_t batch,
                              int64_t length) {
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
      // A line with only a comment does not end the row.
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

}  // namespace tessera::request
