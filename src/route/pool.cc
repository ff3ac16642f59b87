// route/pool.cc: mean-pooled keys.
#include "route/pool.h"

#include <algorithm>

#include "base/integers.h"
#include "base/threads.h"
#include "route/numbers.h"

namespace tessera {
namespace {

// Adds keys [begin, end) of (b, h) to `sum`.
void add_keys(const TensorView& k, int64_t b, int64_t h, int64_t begin,
              int64_t end, float* scratch, float* sum) {
  for (int64_t t = begin; t < end; ++t) {
    const float* row = float_row(k, b, h, t, scratch);
    for (int64_t d = 0; d < k.dim; ++d) sum[d] += row[d];
  }
}

}  // namespace

PooledRow find_pooled_keys(const RouteRow& row, int64_t kv_len,
                           const Compression& c) {
  PooledRow out;
  const auto documents = static_cast<size_t>(row.documents);
  out.start.assign(documents + 1, 0);
  std::vector<std::pair<int32_t, PooledKey>> found;
  // Where the document's key of the current block stands in `found`.
  std::vector<size_t> place(documents, 0);
  const int64_t blocks = ceil_div(kv_len, c.stride);
  for (int64_t index = 0; index < blocks; ++index) {
    const int64_t begin = index * c.stride;
    const int64_t end = begin + c.compression;
    const size_t base = found.size();
    for (size_t r = row.run_from(begin);
         r < row.runs.size() && row.runs[r].begin < end; ++r) {
      const DocumentRun& run = row.runs[r];
      const auto d = static_cast<size_t>(run.document);
      const auto first = static_cast<int32_t>(std::max(begin, run.begin));
      const auto stop = static_cast<int32_t>(std::min(end, run.end));
      const size_t at = place[d];
      if (at < base || at >= found.size() || found[at].first != run.document) {
        place[d] = found.size();
        found.push_back(
            {run.document,
             {static_cast<int32_t>(index), first, stop - 1, stop - first}});
        ++out.start[d + 1];
      } else {
        found[at].second.last = stop - 1;
        found[at].second.tokens += stop - first;
      }
    }
  }
  for (size_t d = 0; d < documents; ++d) out.start[d + 1] += out.start[d];
  std::vector<int32_t> at(out.start.begin(), out.start.end() - 1);
  out.keys.resize(found.size());
  for (const auto& [document, key] : found) {
    out.keys[static_cast<size_t>(at[static_cast<size_t>(document)]++)] = key;
  }
  return out;
}

void pool_keys(const std::vector<RouteRow>& rows, const TensorView& k,
               int threads, std::vector<PooledRow>& pooled) {
  constexpr int64_t kKeysPerTask = 64;
  struct Part {
    size_t row;
    int64_t head, begin, end;
  };
  std::vector<Part> parts;
  for (size_t b = 0; b < rows.size(); ++b) {
    const auto keys = static_cast<int64_t>(pooled[b].keys.size());
    pooled[b].values.assign(static_cast<size_t>(k.heads * keys * k.dim), 0);
    for (int64_t h = 0; h < k.heads; ++h) {
      for (int64_t i = 0; i < keys; i += kKeysPerTask) {
        parts.push_back({b, h, i, std::min(keys, i + kKeysPerTask)});
      }
    }
  }
  const auto work = [&](int64_t task, int) {
    const Part& part = parts[static_cast<size_t>(task)];
    const RouteRow& row = rows[part.row];
    PooledRow& out = pooled[part.row];
    const auto keys = static_cast<int64_t>(out.keys.size());
    std::vector<float> scratch(static_cast<size_t>(k.dim));
    int64_t document =
        std::upper_bound(out.start.begin(), out.start.end(), part.begin) -
        out.start.begin() - 1;
    for (int64_t i = part.begin; i < part.end; ++i) {
      while (i >= out.start[static_cast<size_t>(document) + 1]) ++document;
      const PooledKey& key = out.keys[static_cast<size_t>(i)];
      float* sum = out.values.data() + (part.head * keys + i) * k.dim;
      const int64_t end = int64_t{key.last} + 1;
      for (size_t r = row.run_from(key.first);
           r < row.runs.size() && row.runs[r].begin < end; ++r) {
        const DocumentRun& run = row.runs[r];
        if (run.document != document) continue;
        add_keys(k, static_cast<int64_t>(part.row), part.head,
                 std::max<int64_t>(run.begin, key.first),
                 std::min(run.end, end), scratch.data(), sum);
      }
      const auto tokens = static_cast<float>(key.tokens);
      for (int64_t d = 0; d < k.dim; ++d) sum[d] /= tokens;
    }
  };
  parallel_for(static_cast<int64_t>(parts.size()), threads, work, "pool");
}

}  // namespace tessera
