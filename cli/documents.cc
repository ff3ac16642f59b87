// cli/documents.cc: where packed documents come from.
#include "cli/documents.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <random>
#include <string>

#include "base/fail.h"
#include "base/files.h"
#include "base/npy.h"
#include "base/text.h"
#include "cli/numbers.h"
#include "tessera/facts.h"
#include "tessera/plan.h"

namespace tessera::cli {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{1} << 34;

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

Result<std::vector<int32_t>> ids_from_lengths(
    const std::vector<int32_t>& lengths, std::string_view what,
    int64_t length) {
  std::vector<int32_t> ids(static_cast<size_t>(length), -1);
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

Result<std::vector<int32_t>> repeat(Result<std::vector<int32_t>> row,
                                    int64_t batch) {
  if (!row || batch == 1) return row;
  std::vector<int32_t> all;
  all.reserve(row->size() * static_cast<size_t>(batch));
  for (int64_t b = 0; b < batch; ++b) {
    all.insert(all.end(), row->begin(), row->end());
  }
  return all;
}

Result<std::vector<int32_t>> draw(std::string_view arguments,
                                  std::string_view what, int64_t batch,
                                  int64_t length) {
  double mean = 2048;
  int64_t seed = 0;
  for (std::string_view part : split(arguments, ',')) {
    if (part.empty() && arguments.empty()) break;
    if (take_prefix(part, "mean=")) {
      auto m = parse_positive(part, fmt::format("{} mean", what));
      if (!m) return m.error();
      mean = *m;
    } else if (take_prefix(part, "seed=")) {
      auto s =
          parse_int(part, fmt::format("{} seed", what), 0, int64_t{1} << 62);
      if (!s) return s.error();
      seed = *s;
    } else {
      return invalid("docs", "{} lognormal takes mean=N and seed=N, found {}",
                     what, in_quotes(part));
    }
  }
  std::vector<int32_t> all;
  for (int64_t b = 0; b < batch; ++b) {
    const std::vector<int32_t> row =
        lognormal_ids(mean, static_cast<uint64_t>(seed + b), length);
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

Result<std::vector<int32_t>> read_npy(const std::string& path,
                                      std::string_view bytes, int64_t batch,
                                      int64_t length) {
  auto npy = parse_npy(bytes);
  if (!npy) return npy.error();
  using Shape = std::vector<int64_t>;
  if (npy->shape == Shape{batch, length}) return std::move(npy->values);
  if (npy->shape == Shape{length}) return repeat(npy->values, batch);
  return invalid("docs", "{} must have shape [{}] or [{}, {}], found [{}]",
                 in_quotes(path), length, batch, length,
                 fmt::join(npy->shape, ", "));
}

// Lengths, any number a line; a blank line ends a batch row.
Result<std::vector<int32_t>> read_lengths(const std::string& path,
                                          std::string_view text, int64_t batch,
                                          int64_t length) {
  std::vector<std::vector<int32_t>> rows;
  std::vector<int32_t> row;
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
                         fmt::format("{}:{}: a length", path, number), 1,
                         kMaxTokens);
      if (!n) return n.error();
      row.push_back(static_cast<int32_t>(*n));
    }
  }
  end_row();
  if (static_cast<int64_t>(rows.size()) != batch) {
    return invalid("docs",
                   "{} must hold a row of lengths for each of {} batch rows, "
                   "found {}",
                   in_quotes(path), batch, rows.size());
  }
  std::vector<int32_t> all;
  for (const std::vector<int32_t>& lengths : rows) {
    auto ids = ids_from_lengths(lengths, path, length);
    if (!ids) return ids;
    all.insert(all.end(), ids->begin(), ids->end());
  }
  return all;
}

}  // namespace

std::vector<int32_t> lognormal_ids(double mean, uint64_t seed, int64_t length) {
  // The engine is the standard's; Box-Muller by hand, because the standard's
  // distributions differ between libraries.
  std::mt19937_64 engine(seed);
  auto uniform = [&] {  // in (0, 1]
    return (static_cast<double>(engine() >> 11) + 1) * 0x1p-53;
  };
  const double mu = std::log(mean) - 0.5;
  std::vector<int32_t> ids(static_cast<size_t>(length));
  int64_t at = 0;
  for (int32_t id = 0; at < length; ++id) {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    const double z = radius * std::cos(2 * std::numbers::pi * uniform());
    const double drawn = std::floor(std::exp(mu + z));
    const auto left = static_cast<double>(length - at);
    const auto n = static_cast<int64_t>(std::clamp(drawn, 1.0, left));
    std::fill_n(ids.begin() + at, n, id);
    at += n;
  }
  return ids;
}

Result<std::vector<int32_t>> read_documents(std::string_view source,
                                            std::string_view what,
                                            int64_t batch, int64_t length) {
  std::string_view rest = source;
  if (source == "lognormal") return draw("", what, batch, length);
  if (take_prefix(rest, "lognormal:")) return draw(rest, what, batch, length);
  if (take_prefix(rest, "lengths:")) {
    auto lengths =
        parse_ints(rest, fmt::format("{} lengths", what), 1, kMaxTokens);
    if (!lengths) return lengths;
    return repeat(ids_from_lengths(*lengths, what, length), batch);
  }
  if (take_prefix(rest, "cu_seqlens:")) {
    auto bounds =
        parse_ints(rest, fmt::format("{} cu_seqlens", what), 0, kMaxTokens);
    if (!bounds) return bounds;
    return repeat(ids_from_cu_seqlens(*bounds, length), batch);
  }
  const std::string path(source);
  auto bytes = read_file(path, kMaxFileBytes);
  if (!bytes) return bytes.error();
  if (path.ends_with(".npy") || bytes->starts_with("\x93NUMPY")) {
    return read_npy(path, *bytes, batch, length);
  }
  return read_lengths(path, *bytes, batch, length);
}

}  // namespace tessera::cli
