#include "mask/key_arrays.h"

#include <algorithm>
#include <cstddef>

namespace tessera::mask {

KeyArrays key_arrays(const int32_t* ids, int64_t kv_len) {
  KeyArrays a;
  const auto n = static_cast<size_t>(kv_len);
  a.segment.resize(n);
  a.document_rank.resize(n);
  a.segment_rank.resize(n);
  for (size_t k = 0; k < n; ++k) {
    const bool same = k > 0 && ids[k] == ids[k - 1];
    a.segment[k] = k == 0 ? 0 : a.segment[k - 1] + (same ? 0 : 1);
    a.segment_rank[k] = same ? a.segment_rank[k - 1] + 1 : 0;
  }
  std::vector<int32_t> order(n);
  for (size_t k = 0; k < n; ++k) order[k] = static_cast<int32_t>(k);
  std::stable_sort(order.begin(), order.end(),
                   [ids](int32_t l, int32_t r) { return ids[l] < ids[r]; });
  for (size_t i = 0; i < n; ++i) {
    const bool same = i > 0 && ids[order[i]] == ids[order[i - 1]];
    a.document_rank[static_cast<size_t>(order[i])] =
        same ? a.document_rank[static_cast<size_t>(order[i - 1])] + 1 : 0;
  }
  return a;
}

}  // namespace tessera::mask
