// plan/block_mask.cc: checks a block mask's sizes; its blocks as picks.
#include "plan/block_mask.h"

#include <algorithm>

#include "base/fail.h"
#include "base/integers.h"
#include "mask/bind.h"

namespace tessera {

Result<void> plan::check_block_mask(const BlockMask& m) {
  struct Rule {
    const char* what;
    int64_t value;
  };
  for (const Rule& rule : {Rule{"lists", m.lists}, Rule{"rows", m.rows},
                           Rule{"columns", m.columns}}) {
    if (rule.value >= 1 && rule.value <= kMaxTiles) continue;
    return invalid("blocks", "{} must be from 1 to {}, found {}", rule.what,
                   kMaxTiles, rule.value);
  }
  // Row starts are 32 bits, and each list has row starts even without blocks.
  if (m.lists * std::max(m.rows, m.columns) > kMaxTiles) {
    return over_limit("blocks",
                      "rows and columns over all lists must be at most {}, "
                      "found {} lists of [{}, {}]",
                      kMaxTiles, m.lists, m.rows, m.columns);
  }
  const int64_t rows = m.lists * m.rows;
  int64_t want = 0;
  if (__builtin_mul_overflow(rows, m.row_bytes(), &want) ||
      want != static_cast<int64_t>(m.cells.size())) {
    return invalid("blocks",
                   "a {} mask of [{}, {}, {}] must hold {} bytes a row for {} "
                   "rows, found {} in all",
                   m.packed ? "packed" : "byte", m.lists, m.rows, m.columns,
                   m.row_bytes(), rows, m.cells.size());
  }
  if (!m.packed || m.columns % 8 == 0) return {};
  for (int64_t r = 0; r < rows; ++r) {
    const uint8_t last =
        m.cells[static_cast<size_t>((r + 1) * m.row_bytes()) - 1];
    if (last >> (m.columns % 8) == 0) continue;
    return invalid("blocks",
                   "bits behind the {} columns must be 0, found others for row "
                   "{} of list {}",
                   m.columns, r % m.rows, r / m.rows);
  }
  return {};
}

Result<TopkPicks> picks_from_blocks(const BlockMask& m, const Request& r) {
  if (auto e = mask::check_request(r); !e) return e.error();
  if (auto e = plan::check_block_mask(m); !e) return e.error();
  const Names names = mask::names_of(r);
  if (!names.picks) {
    return invalid("blocks",
                   "a block mask is the picks of a mask, so one must name "
                   "blocks(n), found none");
  }
  const int64_t n = names.picks_block;
  const int64_t rows = ceil_div(r.q_len, n);
  const int64_t columns = ceil_div(r.kv_len, n);
  if (m.rows != rows || m.columns != columns || m.lists % r.batch != 0) {
    return invalid("blocks",
                   "a block mask must be [{}, heads, {}, {}], blocks of {} "
                   "tokens, found [{}, {}, {}]",
                   r.batch, rows, columns, n, m.lists, m.rows, m.columns);
  }
  const auto active = [&](int64_t row, int64_t c) {
    const uint8_t* const cells = m.cells.data() + row * m.row_bytes();
    return m.packed ? (cells[c / 8] >> (c % 8) & 1) != 0 : cells[c] != 0;
  };
  std::vector<int32_t> blocks;  // active blocks of all block rows
  std::vector<size_t> begin;
  size_t widest = 1;
  for (int64_t row = 0; row < m.lists * rows; ++row) {
    begin.push_back(blocks.size());
    for (int64_t c = 0; c < columns; ++c) {
      if (active(row, c)) blocks.push_back(static_cast<int32_t>(c));
    }
    widest = std::max(widest, blocks.size() - begin.back());
  }
  begin.push_back(blocks.size());
  TopkPicks out;
  out.heads = m.lists / r.batch;
  out.k = static_cast<int64_t>(widest);
  int64_t size = 0;
  if (__builtin_mul_overflow(m.lists * r.q_len, out.k, &size) ||
      size > kMaxLayoutBytes / int64_t{sizeof(int32_t)}) {
    return over_limit("blocks",
                      "picks may take {} bytes, found {} lists of {} queries "
                      "that pick {} blocks",
                      kMaxLayoutBytes, m.lists, r.q_len, out.k);
  }
  out.blocks.assign(static_cast<size_t>(size), -1);
  for (int64_t list = 0; list < m.lists; ++list) {
    for (int64_t q = 0; q < r.q_len; ++q) {
      const auto row = static_cast<size_t>(list * rows + q / n);
      std::copy(blocks.data() + begin[row], blocks.data() + begin[row + 1],
                out.blocks.data() + (list * r.q_len + q) * out.k);
    }
  }
  return out;
}

}  // namespace tessera
