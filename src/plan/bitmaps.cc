// plan/bitmaps.cc: token masks of the partial tiles, equal ones stored once.
//
// A tile of 1 x 1 is a pair, so the classifier set to that size tells the legal
// keys of one query as intervals. A tile row's queries are asked once each, and
// filling a tile is then a few runs of bits a query: no pair is looked at
// alone.
#include <algorithm>
#include <bit>
#include <unordered_map>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/fail.h"
#include "mask/bind.h"
#include "mask/classify.h"
#include "mask/program.h"
#include "plan/well_formed.h"
#include "tessera/layouts.h"

namespace tessera {
namespace {

constexpr int64_t kMaxWords = kMaxLayoutBytes / 8;

// Sets bits [begin, end).
void set_bits(std::vector<uint64_t>& words, int64_t begin, int64_t end) {
  while (begin < end) {
    const int64_t stop = std::min(end, (begin | 63) + 1);
    const int64_t count = stop - begin;
    const uint64_t ones =
        count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
    words[static_cast<size_t>(begin >> 6)] |= ones << (begin & 63);
    begin = stop;
  }
}

// The legal keys of each query of one tile row, as ascending intervals, and
// how far each query's were used up.
class RowKeys {
 public:
  void read(Classifier& pairs, int64_t q_begin, int64_t q_end) {
    keys_.clear();
    at_.clear();
    for (int64_t q = q_begin; q < q_end; ++q) {
      const size_t begin = keys_.size();
      for (const Span& s : pairs.tile_row(q)) keys_.push_back({s.begin, s.end});
      at_.push_back({begin, keys_.size()});
    }
  }

  // Fills the tile of keys [k_begin, k_end); columns must be asked ascending.
  void fill(int64_t k_begin, int64_t k_end, int64_t stride,
            std::vector<uint64_t>& words) {
    std::fill(words.begin(), words.end(), 0);
    for (size_t q = 0; q < at_.size(); ++q) {
      auto& [at, end] = at_[q];
      while (at < end && keys_[at].end <= k_begin) ++at;
      const int64_t base = static_cast<int64_t>(q) * stride - k_begin;
      for (size_t i = at; i < end && keys_[i].begin < k_end; ++i) {
        set_bits(words, base + std::max(keys_[i].begin, k_begin),
                 base + std::min(keys_[i].end, k_end));
      }
    }
  }

 private:
  struct Rest {
    size_t at;
    size_t end;
  };
  std::vector<Interval> keys_;
  std::vector<Rest> at_;  // per query
};

// Numbers bitmaps in the order in which they are first met.
class Distinct {
 public:
  explicit Distinct(Bitmaps& out) : out_(out) {}

  // -1 where the words of one more would not fit.
  int32_t number_of(const std::vector<uint64_t>& words) {
    const uint64_t hash = XXH3_64bits(words.data(), words.size() * 8);
    const auto [begin, end] = seen_.equal_range(hash);
    for (auto it = begin; it != end; ++it) {
      const auto first = out_.words.begin() +
                         static_cast<int64_t>(it->second) * out_.words_per_tile;
      if (std::equal(words.begin(), words.end(), first)) return it->second;
    }
    if (static_cast<int64_t>(out_.words.size() + words.size()) > kMaxWords) {
      return -1;
    }
    out_.words.insert(out_.words.end(), words.begin(), words.end());
    return seen_.emplace(hash, static_cast<int32_t>(seen_.size()))->second;
  }

 private:
  Bitmaps& out_;
  std::unordered_multimap<uint64_t, int32_t> seen_;
};

Error other_plan(int64_t batch_row, int64_t head, std::string_view what,
                 int64_t found, int64_t due) {
  return invalid("bitmaps",
                 "plan must be the plan of the request and facts, found {} "
                 "legal pairs for {} in {} of batch row {}, head {}",
                 found, due, what, batch_row, head);
}

}  // namespace

Result<Bitmaps> make_bitmaps(const Request& request, const Facts& facts,
                             const Plan& plan) {
  if (auto r = check_plan_of(request, plan, "bitmaps"); !r) return r.error();
  auto bound = bind(request, facts);
  if (!bound) return bound.error();
  if (bound->heads != plan.heads) {
    return invalid("bitmaps",
                   "plan must be the plan of the request and facts, found {} "
                   "heads for {}",
                   plan.heads, bound->heads);
  }
  std::vector<Program> programs;
  for (const Mask& mask : request.masks) {
    auto program = compile(mask);
    if (!program) return program.error();
    programs.push_back(std::move(*program));
  }

  bound->tile = {1, 1};
  Classifier pairs(*bound);
  Bitmaps out;
  const Tile tile = plan.tile;
  out.words_per_tile = (tile.q * tile.kv + 63) / 64;
  out.of_entry.assign(plan.forward.entries.size(), -1);
  Distinct distinct(out);
  RowKeys keys;
  std::vector<uint64_t> words(static_cast<size_t>(out.words_per_tile));
  const auto groups = static_cast<int64_t>(programs.size());
  size_t entry = 0;
  for (int64_t b = 0; b < plan.batch; ++b) {
    pairs.begin_batch_row(b);
    for (int64_t h = 0; h < plan.heads; ++h) {
      pairs.begin_list(programs[static_cast<size_t>(h * groups / plan.heads)],
                       h);
      const int64_t list = plan.list(b, h);
      int64_t legal = 0;
      for (int64_t r = 0; r < plan.forward.rows; ++r) {
        const int64_t q_begin = r * tile.q;
        const int64_t q_end = std::min(q_begin + tile.q, plan.q_len);
        bool read = false;
        for (const Entry e : plan.forward.row(list, r)) {
          const int64_t k_begin = e.column() * tile.kv;
          const int64_t k_end = std::min(k_begin + tile.kv, plan.kv_len);
          const int64_t area = (q_end - q_begin) * (k_end - k_begin);
          const size_t at = entry++;
          if (e.tile_class() == TileClass::full) {
            legal += area;
            continue;
          }
          if (!read) keys.read(pairs, q_begin, q_end);
          read = true;
          keys.fill(k_begin, k_end, tile.kv, words);
          int64_t ones = 0;
          for (uint64_t word : words) ones += std::popcount(word);
          if (ones == 0 || ones == area) {
            return other_plan(b, h, fmt::format("tile ({}, {})", r, e.column()),
                              ones, area);
          }
          legal += ones;
          out.of_entry[at] = distinct.number_of(words);
          if (out.of_entry[at] < 0) {
            return over_limit("bitmaps",
                              "bitmaps may take {} bytes, found more at tile "
                              "({}, {}) of batch row {}, head {}",
                              kMaxLayoutBytes, r, e.column(), b, h);
          }
        }
      }
      const int64_t due = plan.legal_pairs[static_cast<size_t>(list)];
      if (legal != due) return other_plan(b, h, "the list", legal, due);
    }
  }
  return out;
}

}  // namespace tessera
