// route/pool.cc: mean-pooled keys.
#include "route/pool.h"

#include <algorithm>

#include "route/numbers.h"
#include "route/tasks.h"

namespace tessera::routing {
namespace {

// Adds keys [begin, end) of (b, h) to `sum`.
void add_keys(const TensorView& k, int64_t b, int64_t h, int64_t begin,
              int64_t end, float* scratch, float* sum) {
  for (int64_t t = begin; t < end; ++t) {
    const float* row = float_row(k, b, h, t, scratch);
    for (int64_t d = 0; d < k.dim; ++d) sum[d] += row[d];
  }
}

// The compression blocks that a run overlaps; none if last < first.
struct Reach {
  int64_t first = 0, last = 0;
};

Reach reach_of(const DocumentRun& run, const Compression& c) {
  const int64_t first = run.begin < c.compression
                            ? 0
                            : (run.begin - c.compression) / c.stride + 1;
  return {first, (run.end - 1) / c.stride};
}

}  // namespace

int64_t count_pooled_keys(const RouteRow& row, const Compression& c) {
  int64_t count = 0;
  for (int32_t d = 0; d < row.documents; ++d) {
    int64_t past = 0;  // end of the blocks of earlier runs
    for (const DocumentRun& run : row.runs_of(d)) {
      const Reach reach = reach_of(run, c);
      const int64_t end = reach.last + 1;
      count += std::max<int64_t>(0, end - std::max(reach.first, past));
      past = std::max(past, end);
    }
  }
  return count;
}

PooledRow find_pooled_keys(const RouteRow& row, const Compression& c) {
  PooledRow out;
  out.start.assign(1, 0);
  out.keys.reserve(static_cast<size_t>(count_pooled_keys(row, c)));
  for (int32_t d = 0; d < row.documents; ++d) {
    int64_t past = 0;  // end of the blocks of earlier runs
    for (const DocumentRun& run : row.runs_of(d)) {
      const Reach reach = reach_of(run, c);
      // Blocks that earlier runs also overlap are the last keys.
      size_t at = out.keys.size() -
                  static_cast<size_t>(std::max<int64_t>(0, past - reach.first));
      for (int64_t index = reach.first; index <= reach.last; ++index, ++at) {
        const int64_t begin = index * c.stride;
        const auto first = static_cast<int32_t>(std::max(begin, run.begin));
        const auto stop =
            static_cast<int32_t>(std::min(begin + c.compression, run.end));
        if (at == out.keys.size()) {
          out.keys.push_back(
              {static_cast<int32_t>(index), first, stop - 1, stop - first});
        } else {
          out.keys[at].last = stop - 1;
          out.keys[at].tokens += stop - first;
        }
      }
      past = std::max(past, reach.last + 1);
    }
    out.start.push_back(static_cast<int32_t>(out.keys.size()));
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
    auto document = static_cast<int32_t>(
        std::upper_bound(out.start.begin(), out.start.end(), part.begin) -
        out.start.begin() - 1);
    for (int64_t i = part.begin; i < part.end; ++i) {
      while (i >= out.start[static_cast<size_t>(document) + 1]) ++document;
      const PooledKey& key = out.keys[static_cast<size_t>(i)];
      float* sum = out.values.data() + (part.head * keys + i) * k.dim;
      const int64_t end = int64_t{key.last} + 1;
      const auto runs = row.runs_of(document);
      for (auto run = std::ranges::upper_bound(runs, int64_t{key.first}, {},
                                               &DocumentRun::end);
           run != runs.end() && run->begin < end; ++run) {
        add_keys(k, static_cast<int64_t>(part.row), part.head,
                 std::max<int64_t>(run->begin, key.first),
                 std::min(run->end, end), scratch.data(), sum);
      }
      const auto tokens = static_cast<float>(key.tokens);
      for (int64_t d = 0; d < k.dim; ++d) sum[d] /= tokens;
    }
  };
  run_tasks(static_cast<int64_t>(parts.size()), threads, work, "pool");
}

}  // namespace tessera::routing
