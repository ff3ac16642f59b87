// lanes/cpu/chunks.cc: cuts a plan into the chunks that kernels run.
#include "lanes/cpu/chunks.h"

#include <algorithm>
#include <array>

#include "base/integers.h"

namespace tessera::cpu {
namespace {

// The most keys of a chunk or a block.
constexpr int64_t kKeys =
    std::max(kernels::kForwardKeys, kernels::kBackwardKeys);

// Spans of a query from the first that ends after `key`.
std::span<const KeySpan> spans_after(std::span<const KeySpan> spans,
                                     int64_t key) {
  const auto at =
      std::partition_point(spans.begin(), spans.end(),
                           [key](const KeySpan& s) { return s.end <= key; });
  return spans.subspan(static_cast<size_t>(at - spans.begin()));
}

// The legal pairs of queries [q_begin, q_end) and keys [k_begin, k_end).
class Window {
 public:
  Window(const CpuWork::State& work, int64_t list, int64_t q_begin,
         int64_t q_end, int64_t k_begin, int64_t k_end)
      : work_(work),
        list_(list),
        q_begin_(q_begin),
        q_end_(q_end),
        k_begin_(k_begin),
        k_end_(k_end) {
    for (int64_t q = q_begin; q < q_end; ++q) {
      int32_t layers = 0;
      bool whole = false;
      for (const KeySpan& s : spans_after(work.keys_of(list, q), k_begin)) {
        if (s.begin >= k_end) break;
        const int64_t first = std::max<int64_t>(s.begin, k_begin) - k_begin;
        const int64_t last = std::min<int64_t>(s.end, k_end) - k_begin;
        first_key = std::min(first_key, first);
        last_key = std::max(last_key, last);
        ++change_[static_cast<size_t>(first)];
        --change_[static_cast<size_t>(last)];
        whole = first == 0 && last == k_end - k_begin;
        ++layers;
      }
      most_layers = std::max(most_layers, layers);
      full &= whole;
    }
  }

  // Appends bounds [layers][stride], relative to key k_begin + from. Rows past
  // the last query, up to `rows`, repeat it.
  void append(int64_t from, int64_t rows, int64_t stride,
              std::vector<int32_t>& first, std::vector<int32_t>& last) const {
    const size_t at = first.size();
    first.resize(at + static_cast<size_t>(most_layers * stride));
    last.resize(first.size());
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t q = std::min(q_begin_ + r, q_end_ - 1);
      size_t to = at + static_cast<size_t>(r);
      const size_t end = at + static_cast<size_t>(most_layers * stride + r);
      for (const KeySpan& s : spans_after(work_.keys_of(list_, q), k_begin_)) {
        if (s.begin >= k_end_) break;
        const int64_t base = k_begin_ + from;
        first[to] =
            static_cast<int32_t>(std::max<int64_t>(s.begin, k_begin_) - base);
        last[to] =
            static_cast<int32_t>(std::min<int64_t>(s.end, k_end_) - base);
        to += static_cast<size_t>(stride);
      }
      for (; to < end; to += static_cast<size_t>(stride)) {
        first[to] = last[to] = 0;
      }
    }
  }

  // Marks the keys [from, to) that some query attends to; returns whether all.
  bool mark_live(int64_t from, int64_t to, uint8_t* live) const {
    int32_t queries = 0;
    bool all = true;
    for (int64_t k = 0; k < to; ++k) {
      queries += change_[static_cast<size_t>(k)];
      if (k < from) continue;
      live[k - from] |= queries > 0;
      all &= live[k - from] != 0;
    }
    return all;
  }

  bool empty() const { return most_layers == 0; }

  int64_t first_key = kKeys, last_key = 0;  // of all legal pairs
  int32_t most_layers = 0;                  // most spans of a query
  bool full = true;

 private:
  const CpuWork::State& work_;
  int64_t list_, q_begin_, q_end_, k_begin_, k_end_;
  std::array<int32_t, kKeys + 1> change_{};  // in queries, by key
};

}  // namespace

void active_columns(const Worklist& worklist, int64_t list, int64_t begin,
                    int64_t end, std::vector<ActiveColumn>& out) {
  out.clear();
  for (int64_t r = begin; r < end; ++r) {
    for (const Entry e : worklist.row(list, r)) {
      out.push_back({e.column(), e.tile_class() == TileClass::full});
    }
  }
  if (end - begin == 1) return;
  std::sort(out.begin(), out.end(),
            [](const ActiveColumn& a, const ActiveColumn& b) {
              return a.column < b.column;
            });
  size_t n = 0;
  for (size_t i = 0; i < out.size();) {
    ActiveColumn c = out[i];
    size_t j = i;
    for (; j < out.size() && out[j].column == c.column; ++j) {
      c.full &= out[j].full;
    }
    c.full &= static_cast<int64_t>(j - i) == end - begin;
    out[n++] = c;
    i = j;
  }
  out.resize(n);
}

void QueryBlock::read(const CpuWork::State& work, int64_t list, int64_t q_begin,
                      int64_t q_end) {
  chunks_.clear();
  first_.clear();
  last_.clear();
  key_live_.clear();
  live_.clear();
  for (int64_t q = q_begin; q < q_end; ++q) {
    live_.push_back(work.has_key(list, q) ? 1 : 0);
  }
  active_columns(work.forward, list, q_begin / work.tile.q,
                 (q_end - 1) / work.tile.q + 1, columns_);
  for (size_t i = 0; i < columns_.size();) {
    // A run of adjacent columns, all full or all partial, is cut into chunks.
    size_t j = i + 1;
    while (j < columns_.size() && columns_[j].full == columns_[i].full &&
           columns_[j].column == columns_[j - 1].column + 1) {
      ++j;
    }
    const int64_t run_begin = columns_[i].column * work.tile.kv;
    const int64_t run_end = std::min(
        (columns_[j - 1].column + 1) * work.tile.kv, work.sizes.kv_len);
    for (int64_t k = run_begin; k < run_end; k += kernels::kForwardKeys) {
      const int64_t k_end = std::min(k + kernels::kForwardKeys, run_end);
      if (columns_[i].full) {
        chunks_.push_back({k, static_cast<int32_t>(k_end - k)});
      } else {
        add_partial(work, list, q_begin, q_end, k, k_end);
      }
    }
    i = j;
  }
  // Chunks may point into the arrays now, since these no longer grow.
  size_t bounds = 0, keys = 0;
  for (kernels::KeyChunk& chunk : chunks_) {
    if (chunk.layers == 0) continue;
    chunk.first = first_.data() + bounds;
    chunk.last = last_.data() + bounds;
    bounds += static_cast<size_t>(chunk.layers * kernels::kForwardRows);
    const uint8_t* const live = key_live_.data() + keys;
    keys += static_cast<size_t>(chunk.keys);
    if (std::find(live, live + chunk.keys, 0) != live + chunk.keys) {
      chunk.live = live;
    }
  }
}

void QueryBlock::add_partial(const CpuWork::State& work, int64_t list,
                             int64_t q_begin, int64_t q_end, int64_t k_begin,
                             int64_t k_end) {
  const Window window(work, list, q_begin, q_end, k_begin, k_end);
  if (window.empty()) return;
  const int64_t from = window.first_key, to = window.last_key;
  kernels::KeyChunk chunk{k_begin + from, static_cast<int32_t>(to - from)};
  if (!window.full) {
    chunk.layers = window.most_layers;
    const int64_t rows = std::min(
        ceil_div(q_end - q_begin, kernels::kRowStep) * kernels::kRowStep,
        kernels::kForwardRows);
    window.append(from, rows, kernels::kForwardRows, first_, last_);
    const size_t at = key_live_.size();
    key_live_.resize(at + static_cast<size_t>(chunk.keys));
    window.mark_live(from, to, key_live_.data() + at);
  }
  chunks_.push_back(chunk);
}

void KeyBlock::read(const CpuWork::State& work, int64_t list, int64_t k_begin,
                    int64_t k_end, std::span<const Place> places) {
  chunks_.clear();
  first_.clear();
  last_.clear();
  const int64_t keys = k_end - k_begin;
  live_.assign(static_cast<size_t>(keys), 0);
  all_live_ = false;
  // Vector lanes without a key must be masked: short blocks have no full chunk.
  const bool whole = keys == kernels::kBackwardKeys;
  for (const Place place : places) {
    const int64_t q_begin = int64_t{place.chunk} * kernels::kBackwardRows;
    kernels::BackwardChunk chunk;
    chunk.rows = std::min(kernels::kBackwardRows, work.sizes.q_len - q_begin);
    if (place.full != 0 && whole) {
      all_live_ = true;
    } else {
      const Window window(work, list, q_begin, q_begin + chunk.rows, k_begin,
                          k_end);
      if (window.empty()) {
        chunk.rows = 0;
      } else if (window.full && whole) {
        all_live_ = true;
      } else {
        chunk.layers = window.most_layers;
        window.append(0, chunk.rows, kernels::kBackwardRows, first_, last_);
        if (!all_live_) all_live_ = window.mark_live(0, keys, live_.data());
      }
    }
    chunks_.push_back(chunk);
  }
  size_t bounds = 0;
  for (kernels::BackwardChunk& chunk : chunks_) {
    if (chunk.layers == 0) continue;
    chunk.first = first_.data() + bounds;
    chunk.last = last_.data() + bounds;
    bounds += static_cast<size_t>(chunk.layers * kernels::kBackwardRows);
  }
}

}  // namespace tessera::cpu
