// shard/place.cc: places documents on a ring of shards, the heaviest first.
#include "shard/place.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

#include "tessera/batch.h"

namespace tessera::shard {
namespace {

struct Chunk {
  int64_t begin, end;
  int32_t shard;
  bool homeless = false;  // the ring had no room: the shard is a guess

  int64_t rows() const { return end - begin; }
};

// Weights of a cost: traffic, where 1 is an all-gather, and evenness.
constexpr double kTraffic = 10;
constexpr double kEven = 0.05;
constexpr double kBorder = 2;
constexpr double kSent = 0.2;  // relative to needed traffic
constexpr int32_t kNone = -1;
constexpr double kHomeless = 1000;
// Infinity, since the traffic of many shards may exceed any finite cost.
constexpr double kNever = std::numeric_limits<double>::infinity();

class Ring {
 public:
  Ring(const Problem& p, const PlaceOptions& options)
      : p_(p),
        options_(options),
        n_(p.shards),
        a_work_(1 / p.mean_work()),
        a_row_(1 / p.mean_rows()),
        work_(static_cast<size_t>(n_), 0),
        rows_(static_cast<size_t>(n_), 0),
        size_(static_cast<size_t>(n_), 0),
        row_shards_(static_cast<size_t>(p.rows()), kNone) {}

  void place(const Piece& piece) {
    best_.clear();
    double best = kNever;
    // The fill grows only if a document does not fit.
    const double last = p_.work_cap / p_.mean_work();
    for (const double fill : std::array{
             options_.fill, (options_.fill + last) / 2, last, last + 0.05}) {
      for (int64_t s = 0; s < n_; ++s) {
        const double cost = walk(piece, s, fill * p_.mean_work(), best);
        if (cost < best) {
          best = cost;
          best_ = chunks_;
        }
      }
      if (best < kHomeless) break;
    }
    take();
  }

  RowShards row_shards() { return std::move(row_shards_); }

 private:
  // Cuts the piece from its end, where rows are heaviest, along the ring, and
  // returns the cost. A cost of at least `best` need not be exact.
  double walk(const Piece& piece, int64_t first, double limit, double best) {
    chunks_.clear();
    int64_t end = piece.end;
    const bool whole = piece.end - piece.begin <= options_.chunk;
    for (int64_t i = 0; i < n_ && end > piece.begin; ++i) {
      const int64_t at = first + i;
      const auto s = static_cast<size_t>(at < n_ ? at : at - n_);
      const int64_t room = p_.row_cap - rows_[s];
      const int64_t most = std::min(
          whole ? room : std::min(room, options_.chunk), end - piece.begin);
      const int64_t k = rows_within(end, most, limit - work_of(s));
      if (k > 0) {
        chunks_.push_back({end - k, end, static_cast<int32_t>(s)});
        end -= k;
      } else if (i == 0) {
        break;  // the walk from the next shard gives the same
      }
    }
    double cost = 0;
    if (end > piece.begin) {
      if (best < kHomeless) return kNever;
      if (chunks_.empty() && first + 1 < n_) return kNever;
      cost = kHomeless;
      chunks_.push_back({piece.begin, end, lightest(), true});
    }
    return cost + kTraffic * (traffic() + borders(piece)) +
           kEven * unevenness();
  }

  double work_of(size_t s) const { return static_cast<double>(work_[s]); }

  // The number of rows before `end`, at most `most`, with work within `room`.
  int64_t rows_within(int64_t end, int64_t most, double room) const {
    if (room < 0 || most <= 0) return 0;
    const auto at = [&](int64_t row) { return p_.before.begin() + row; };
    const int64_t least = *at(end) - static_cast<int64_t>(room);
    if (*at(end - most) >= least) return most;
    return at(end) - std::lower_bound(at(end - most), at(end), least);
  }

  int32_t lightest() const {
    int32_t best = 0;
    double least = 0;
    for (int32_t s = 0; s < n_; ++s) {
      const double load =
          load_of(work_, s, a_work_) + load_of(rows_, s, a_row_);
      if (s == 0 || load < least) {
        least = load;
        best = s;
      }
    }
    return best;
  }

  // A tile at the border of two documents is needed by both.
  double borders(const Piece& piece) const {
    int64_t apart = 0;
    const auto meet = [&](int64_t row, int32_t shard) {
      if (row < 0 || row >= p_.rows()) return;
      const int32_t other = row_shards_[static_cast<size_t>(row)];
      if (other != kNone && other != shard) ++apart;
    };
    meet(piece.begin - 1, chunks_.back().shard);
    meet(piece.end, chunks_.front().shard);
    return kBorder * static_cast<double>(apart * p_.kv_bytes) / p_.all_gather();
  }

  static double load_of(const std::vector<int64_t>& of, int32_t s,
                        double a_unit) {
    return static_cast<double>(of[static_cast<size_t>(s)]) * a_unit;
  }

  size_t shift_of(const Chunk& from, const Chunk& to) const {
    const int64_t shift = to.shard - from.shard;
    return static_cast<size_t>(shift < 0 ? shift + n_ : shift);
  }

  // The traffic of chunks_, as if each chunk needed all rows before it.
  double traffic() {
    if (chunks_.size() < 2) return 0;
    grown_ = size_;
    int64_t needed = 0;
    for (auto from = chunks_.begin(); from != chunks_.end(); ++from) {
      for (auto to = chunks_.begin(); to != from; ++to) {  // later rows
        if (from->shard == to->shard) continue;
        needed += from->rows();
        int64_t& size = grown_[shift_of(*from, *to)];
        size = std::max(size, from->rows());
      }
    }
    double sent = 0;
    for (size_t k = 1; k < grown_.size(); ++k) {
      const int64_t more = grown_[k] - size_[k];
      if (more > 0) {
        sent += static_cast<double>(bucket(grown_[k]) - bucket(size_[k])) +
                0.1 * static_cast<double>(more);
      }
    }
    return (static_cast<double>(needed) +
            kSent * sent * static_cast<double>(n_)) *
           static_cast<double>(p_.kv_bytes) / p_.all_gather();
  }

  double unevenness() const {
    double sum = 0;
    for (const Chunk& c : chunks_) {
      const double w = load_of(work_, c.shard, a_work_);
      const double r = load_of(rows_, c.shard, a_row_);
      const double dw = static_cast<double>(p_.work(c.begin, c.end)) * a_work_;
      const double dr = static_cast<double>(c.rows()) * a_row_;
      sum += dw * (2 * w + dw) + dr * (2 * r + dr);
    }
    return sum;
  }

  void give(int64_t begin, int64_t end, int32_t shard) {
    const auto s = static_cast<size_t>(shard);
    work_[s] += p_.work(begin, end);
    rows_[s] += end - begin;
    std::fill(row_shards_.begin() + begin, row_shards_.begin() + end, shard);
  }

  // Deals the chunk to the lightest shards, in parts that shrink with the rows
  // left. All shards together have room for all rows.
  void deal(const Chunk& c) {
    using Load = std::pair<double, int32_t>;
    std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
    const auto push = [&](int32_t s) {
      if (rows_[static_cast<size_t>(s)] >= p_.row_cap) return;
      loads.emplace(load_of(work_, s, a_work_) + load_of(rows_, s, a_row_), s);
    };
    for (int32_t s = 0; s < n_; ++s) push(s);
    for (int64_t end = c.end; end > c.begin;) {
      const int32_t s = loads.top().second;
      loads.pop();
      const int64_t most =
          std::min(options_.chunk, p_.row_cap - rows_[static_cast<size_t>(s)]);
      const int64_t k =
          std::clamp<int64_t>((end - c.begin) / (2 * n_), 1, most);
      give(end - k, end, s);
      end -= k;
      push(s);
    }
  }

  bool is_dealt(const Chunk& c) const { return options_.deals && c.homeless; }

  void take() {
    for (const Chunk& c : best_) {
      if (is_dealt(c)) continue;
      give(c.begin, c.end, c.shard);
      for (const Chunk& to : best_) {
        if (is_dealt(to) || c.begin >= to.begin || c.shard == to.shard)
          continue;
        int64_t& size = size_[shift_of(c, to)];
        size = std::max(size, c.rows());
      }
    }
    if (is_dealt(best_.back())) deal(best_.back());
  }

  const Problem& p_;
  const PlaceOptions& options_;
  const int64_t n_;
  const double a_work_, a_row_;  // 1 / mean
  std::vector<int64_t> work_, rows_;
  std::vector<int64_t> size_, grown_;  // tiles of each shift
  RowShards row_shards_;
  std::vector<Chunk> chunks_, best_;
};

}  // namespace

RowShards place_pieces(const Problem& p, std::vector<Piece> pieces,
                       const PlaceOptions& options) {
  std::sort(pieces.begin(), pieces.end(), [&](const Piece& a, const Piece& b) {
    const int64_t x = p.work(a.begin, a.end);
    const int64_t y = p.work(b.begin, b.end);
    return x != y ? x > y : a.begin < b.begin;
  });
  Ring ring(p, options);
  for (const Piece& piece : pieces) ring.place(piece);
  return ring.row_shards();
}

}  // namespace tessera::shard
