// lanes/mosaic/token_ids.cc: key by key, with runs of ids where segments count.
#include "lanes/mosaic/token_ids.h"

#include <algorithm>

#include "lanes/mosaic/kernel_steps.h"
#include "lanes/mosaic/shape.h"
#include "mask/runs.h"

namespace tessera::mosaic {

mask::BoundRow veto_row(const Request& request, const mask::Bound& bound,
                        int64_t batch_row) {
  mask::BoundRow row = bound.rows[static_cast<size_t>(batch_row)];
  const bool ids_veto = std::ranges::all_of(request.masks, [](const Mask& m) {
    return m.names.documents || m.names.segments;
  });
  if (!ids_veto) row.ids = row.q_ids = nullptr;
  return row;
}

KeyIds::KeyIds(const mask::Bound& bound, const mask::BoundRow& row,
               const Rule& rule)
    : row_(row),
      documents_(rule.documents && !rule.segments),
      of_key_(static_cast<size_t>(bound.kv_len), 0) {
  if (row.ids && rule.segments) {
    mask::IdRuns runs;
    mask::find_runs(row.ids, bound.kv_len, runs);
    for (int64_t r = 0; r < runs.count(); ++r) {
      const auto at = static_cast<size_t>(r);
      std::fill(of_key_.begin() + runs.start[at],
                of_key_.begin() + runs.start[at + 1], static_cast<int32_t>(r));
    }
  } else if (row.ids && documents_) {
    std::copy_n(row.ids, bound.kv_len, of_key_.begin());
  }
  for (int64_t k = 0; k < bound.kv_len; ++k) {
    if (is_vetoed(row, k)) of_key_[static_cast<size_t>(k)] = kNoKey;
  }
}

int32_t KeyIds::of_query(int64_t q) const {
  if (q >= row_.q_end) return kNoQuery;
  if (row_.q_ids) {
    const int32_t id = row_.q_ids[q];
    if (id < 0) return kNoQuery;
    return documents_ ? id : 0;
  }
  if (!row_.ids) return 0;
  const int32_t id = of_key(q + row_.q_offset);
  return id < 0 ? kNoQuery : id;
}

}  // namespace tessera::mosaic
