// mask/document_ids.cc: document ids from other forms of documents.
#include <algorithm>
#include <string>

#include "base/fail.h"
#include "tessera/facts.h"
#include "tessera/plan.h"

namespace tessera {
namespace {

using Ids = std::vector<int32_t>;

Result<void> check_range(std::string_view what, int64_t value, int64_t most) {
  if (value >= 1 && value <= most) return {};
  return invalid("facts", "{} must be from 1 to {}, found {}", what, most,
                 value);
}

// The length of the rows if `values` holds `batch` rows.
Result<int64_t> row_length(std::string_view name, Ints values, int64_t batch) {
  if (auto e = check_range("batch", batch, kMaxBatch); !e) {
    return e.error();
  }
  const auto count = static_cast<int64_t>(values.size());
  if (count == 0 || count % batch != 0 || count / batch > kMaxTokens) {
    return invalid("facts",
                   "{} must hold {} rows of one length from 1 to {}, found {} "
                   "values",
                   name, batch, kMaxTokens, count);
  }
  return count / batch;
}

}  // namespace

Result<Ids> ids_from_cu_seqlens(Ints cu_seqlens, int64_t kv_len) {
  if (auto e = check_range("kv_len", kv_len, kMaxTokens); !e) {
    return e.error();
  }
  if (cu_seqlens.empty() || cu_seqlens[0] != 0) {
    return invalid("facts", "cu_seqlens must begin with 0, found {}",
                   cu_seqlens.empty() ? std::string("nothing")
                                      : fmt::to_string(cu_seqlens[0]));
  }
  for (size_t i = 1; i < cu_seqlens.size(); ++i) {
    if (cu_seqlens[i] < cu_seqlens[i - 1]) {
      return invalid("facts", "cu_seqlens must not fall, found {} after {}",
                     cu_seqlens[i], cu_seqlens[i - 1]);
    }
  }
  if (cu_seqlens.back() > kv_len) {
    return invalid("facts", "cu_seqlens must end within kv_len {}, found {}",
                   kv_len, cu_seqlens.back());
  }
  Ids ids(static_cast<size_t>(kv_len), -1);
  for (size_t i = 1; i < cu_seqlens.size(); ++i) {
    std::fill(ids.begin() + cu_seqlens[i - 1], ids.begin() + cu_seqlens[i],
              static_cast<int32_t>(i - 1));
  }
  return ids;
}

Result<Ids> ids_from_position_ids(Ints position_ids, int64_t batch) {
  auto length = row_length("position_ids", position_ids, batch);
  if (!length) return length.error();
  Ids ids;
  ids.reserve(position_ids.size());
  for (size_t at = 0; at < position_ids.size(); ++at) {
    const int64_t position = position_ids[at];
    if (position < 0) {
      return invalid("facts",
                     "position_ids must be at least 0, found {} for token {} "
                     "of row {}",
                     position, static_cast<int64_t>(at) % *length,
                     static_cast<int64_t>(at) / *length);
    }
    if (static_cast<int64_t>(at) % *length == 0) {
      ids.push_back(0);
    } else {
      const bool goes_on = position == int64_t{position_ids[at - 1]} + 1;
      ids.push_back(ids.back() + (goes_on ? 0 : 1));
    }
  }
  return ids;
}

Result<Ids> segments_from_ids(Ints doc_ids, int64_t batch) {
  auto length = row_length("doc_ids", doc_ids, batch);
  if (!length) return length.error();
  Ids segments;
  segments.reserve(doc_ids.size());
  int32_t next = 0;
  for (size_t at = 0; at < doc_ids.size(); ++at) {
    const bool begins = static_cast<int64_t>(at) % *length == 0;
    if (begins) next = 0;
    if (doc_ids[at] < 0) {
      segments.push_back(-1);
    } else if (!begins && doc_ids[at] == doc_ids[at - 1]) {
      segments.push_back(segments.back());
    } else {
      segments.push_back(next++);
    }
  }
  return segments;
}

}  // namespace tessera
