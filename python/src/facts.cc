#include "facts.h"

#include <nanobind/stl/string.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "block_mask.h"
#include "failure.h"
#include "mask/bind.h"
#include "mask/canonical.h"
#include "tessera/layouts.h"
#include "unlocked.h"

namespace tessera::python {
namespace {

void read_same(nb::handle given, std::span<const int64_t> shape,
               OwnedFacts& facts) {
  if (!nb::isinstance<nb::dict>(given)) {
    refuse("same must be a dict of a letter to its ids, found " +
           nb::cast<std::string>(given.type().attr("__name__")));
  }
  for (auto [key, ids] : nb::borrow<nb::dict>(given)) {
    const auto name = nb::cast<std::string>(nb::str(key));
    if (name.size() != 1 || name[0] < 'a' || name[0] >= 'a' + kSameNames) {
      refuse("same takes letters from a to h, found '" + name + "'");
    }
    const auto i = static_cast<size_t>(name[0] - 'a');
    const std::string fact = mask::same_fact(static_cast<int64_t>(i));
    facts.same_ids[i] = read_ints(fact.c_str(), ids, shape).values;
  }
}

size_t dims_of(nb::handle object) {
  if (nb::hasattr(object, "ndim")) return nb::cast<size_t>(object.attr("ndim"));
  size_t n = 0;
  nb::object at = nb::borrow(object);
  while (nb::isinstance<nb::list>(at) || nb::isinstance<nb::tuple>(at)) {
    ++n;
    if (nb::len(at) == 0) break;
    at = at[0];
  }
  return n;
}

void take_picks(TopkPicks picks, OwnedFacts& facts) {
  facts.picks = std::move(picks.blocks);
  facts.picks_heads = picks.heads;
  facts.picks_k = picks.k;
}

void take_topk(nb::handle topk_idxs, const Request& request,
               OwnedFacts& facts) {
  if (topk_idxs.is_none()) return;
  const size_t dims = dims_of(topk_idxs);
  const std::vector<int64_t> any(dims >= 2 && dims <= 4 ? dims : 3, -1);
  const IntArray read = read_ints("topk_idxs", topk_idxs, any);
  take_picks(
      take(unlocked_if_long(
          read.values.size(),
          [&] { return picks_from_topk(read.values, read.shape, request); })),
      facts);
}

}  // namespace

OwnedFacts read_facts(const FactArguments& given, const Request& request) {
  // Sizes are checked first, since one number is repeated for each batch row.
  take(mask::check_request(request));
  const int64_t batch = request.batch;
  const int64_t kv_len = request.kv_len;
  const int64_t keys[] = {batch, kv_len};
  const int64_t queries[] = {batch, request.q_len};
  const int64_t rows[] = {batch};
  OwnedFacts out;
  const int sources = static_cast<int>(!given.doc_ids.is_none()) +
                      static_cast<int>(!given.cu_seqlens.is_none()) +
                      static_cast<int>(!given.position_ids.is_none());
  if (sources > 1) {
    refuse(
        "documents come from one of doc_ids, cu_seqlens and position_ids, "
        "found " +
        std::to_string(sources));
  }
  if (!given.doc_ids.is_none()) {
    out.doc_ids = read_ints("doc_ids", given.doc_ids, keys).values;
  }
  if (!given.cu_seqlens.is_none()) {
    if (batch != 1) {
      refuse("cu_seqlens are of a batch of 1, found " + std::to_string(batch));
    }
    const std::vector<int64_t> any{-1};
    const IntArray at = read_ints("cu_seqlens", given.cu_seqlens, any);
    out.doc_ids = take(unlocked_if_long(static_cast<size_t>(kv_len), [&] {
      return ids_from_cu_seqlens(at.values, kv_len);
    }));
  }
  if (!given.position_ids.is_none()) {
    const IntArray at = read_ints("position_ids", given.position_ids, keys);
    out.doc_ids = take(unlocked_if_long(at.values.size(), [&] {
      return ids_from_position_ids(at.values, batch);
    }));
  }
  if (!given.q_doc_ids.is_none()) {
    out.q_doc_ids = read_ints("q_doc_ids", given.q_doc_ids, queries).values;
  }
  if (!given.valid_token_counts.is_none()) {
    out.valid_token_counts =
        read_ints("valid_token_counts", given.valid_token_counts, rows).values;
  }
  if (!given.prefix.is_none()) {
    out.prefix_lengths = read_ints("prefix", given.prefix, rows).values;
  }
  if (!given.q_offset.is_none()) {
    out.q_offsets = read_ints("q_offset", given.q_offset, rows).values;
  }
  if (!given.tree_enter.is_none()) {
    out.tree_enter = read_ints("tree_enter", given.tree_enter, keys).values;
  }
  if (!given.tree_leave.is_none()) {
    out.tree_leave = read_ints("tree_leave", given.tree_leave, keys).values;
  }
  if (!given.same.is_none()) read_same(given.same, keys, out);
  if (!given.picks.is_none()) {
    const std::vector<int64_t> shape{batch, -1, request.q_len, -1};
    IntArray picks = read_ints("picks", given.picks, shape);
    const size_t n = picks.shape.size();
    out.picks_heads = n >= 3 ? picks.shape[n - 3] : 1;
    out.picks_k = n >= 1 ? picks.shape[n - 1] : 0;
    out.picks = std::move(picks.values);
  }
  return out;
}

void read_selections(nb::handle picks, nb::handle topk_idxs,
                     nb::handle block_mask, const Request& request,
                     OwnedFacts& facts) {
  const int sources = static_cast<int>(!picks.is_none()) +
                      static_cast<int>(!topk_idxs.is_none()) +
                      static_cast<int>(!block_mask.is_none());
  if (sources > 1) {
    refuse("picks come from one of picks, topk_idxs and block_mask, found " +
           std::to_string(sources));
  }
  take_topk(topk_idxs, request, facts);
  if (!block_mask.is_none()) {
    const BlockMask cells = read_block_mask("block_mask", block_mask, {});
    take_picks(
        take(unlocked([&] { return picks_from_blocks(cells, request); })),
        facts);
  }
}

}  // namespace tessera::python
