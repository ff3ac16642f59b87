// shard/exchange.cc: swaps whole documents until loads are even.
#include <algorithm>
#include <numeric>

#include "shard/place.h"

namespace tessera::shard {
namespace {

struct Item {
  int64_t begin = 0, rows = 0, work = 0;
};

// An exchange of an item of one shard for an item of another; -1: none.
struct Swap {
  int64_t give = -1, take = -1;
  size_t with = 0;
};

class Exchange {
 public:
  Exchange(const Problem& p, const std::vector<Piece>& pieces,
           RowShards& row_shards)
      : p_(p),
        row_shards_(row_shards),
        work_cap_(p.work_cap - 0.008 * p.mean_work()),
        a_work_(1 / p.mean_work()),
        a_row_(1 / p.mean_rows()),
        shards_(static_cast<size_t>(p.shards)) {
    for (size_t r = 0; r < row_shards.size(); ++r) {
      const auto row = static_cast<int64_t>(r);
      Load& load = shards_[static_cast<size_t>(row_shards[r])];
      load.work += p.work(row, row + 1);
      ++load.rows;
    }
    for (const Piece& q : pieces) {
      const auto begin = row_shards.begin() + q.begin;
      const auto end = row_shards.begin() + q.end;
      if (std::all_of(begin, end, [&](int32_t s) { return s == *begin; })) {
        shards_[static_cast<size_t>(*begin)].items.push_back(
            {q.begin, q.end - q.begin, p.work(q.begin, q.end)});
      }
    }
  }

  // Takes a step, worst shards first; returns whether one helped.
  bool step() {
    std::vector<size_t> order(shards_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      const double x = badness(shards_[a]);
      const double y = badness(shards_[b]);
      return x != y ? x > y : a < b;
    });
    constexpr size_t kTries = 3;
    for (size_t i = 0; i < std::min(kTries, order.size()); ++i) {
      if (badness(shards_[order[i]]) <= 0) return false;
      if (improve(order[i])) return true;
    }
    return false;
  }

 private:
  struct Load {
    int64_t work = 0, rows = 0;
    std::vector<Item> items;
  };

  double badness(int64_t work, int64_t rows) const {
    const double w =
        std::max(0.0, static_cast<double>(work) - work_cap_) * a_work_;
    const double r =
        std::max(0.0, static_cast<double>(rows - p_.row_cap)) * a_row_;
    return w * w + r * r + 0.01 * (w + r);
  }
  double badness(const Load& s) const { return badness(s.work, s.rows); }

  // The lightest shards by work if this one has too much, else by rows.
  std::vector<size_t> partners(size_t from) const {
    std::vector<size_t> out(shards_.size());
    std::iota(out.begin(), out.end(), size_t{0});
    out.erase(out.begin() + static_cast<std::ptrdiff_t>(from));
    const bool by_work = static_cast<double>(shards_[from].work) > work_cap_;
    std::sort(out.begin(), out.end(), [&](size_t x, size_t y) {
      const int64_t a = by_work ? shards_[x].work : shards_[x].rows;
      const int64_t b = by_work ? shards_[y].work : shards_[y].rows;
      return a != b ? a < b : x < y;
    });
    constexpr size_t kPartners = 8;
    if (out.size() > kPartners) out.resize(kPartners);
    return out;
  }

  bool improve(size_t from) {
    Load& a = shards_[from];
    double best = -1e-12;
    Swap found;
    const double bad = badness(a);
    for (const size_t with : partners(from)) {
      const Load& b = shards_[with];
      const double base = bad + badness(b);
      for (int64_t x = -1; x < static_cast<int64_t>(a.items.size()); ++x) {
        const Item give = x < 0 ? Item{} : a.items[static_cast<size_t>(x)];
        for (int64_t y = -1; y < static_cast<int64_t>(b.items.size()); ++y) {
          const Item take = y < 0 ? Item{} : b.items[static_cast<size_t>(y)];
          const int64_t work = give.work - take.work;
          const int64_t rows = give.rows - take.rows;
          double gain = badness(a.work - work, a.rows - rows) - base;
          if (gain >= best) continue;
          gain += badness(b.work + work, b.rows + rows);
          if (gain < best) {
            best = gain;
            found = {x, y, with};
          }
        }
      }
    }
    if (found.give < 0 && found.take < 0) return false;
    Load& b = shards_[found.with];
    const Item give = taken_out(a, found.give);
    const Item take = taken_out(b, found.take);
    put(b, found.with, give);
    put(a, from, take);
    return true;
  }

  static Item taken_out(Load& s, int64_t i) {
    if (i < 0) return {};
    const Item item = s.items[static_cast<size_t>(i)];
    s.items.erase(s.items.begin() + i);
    s.work -= item.work;
    s.rows -= item.rows;
    return item;
  }

  void put(Load& s, size_t shard, const Item& item) {
    if (item.rows == 0) return;
    s.items.push_back(item);
    s.work += item.work;
    s.rows += item.rows;
    const auto begin = row_shards_.begin() + item.begin;
    std::fill(begin, begin + item.rows, static_cast<int32_t>(shard));
  }

  const Problem& p_;
  RowShards& row_shards_;
  double work_cap_;  // a margin below p.work_cap, since later steps miss that
                     // cap first
  double a_work_, a_row_;  // 1 / mean
  std::vector<Load> shards_;
};

}  // namespace

void exchange_pieces(const Problem& p, const std::vector<Piece>& pieces,
                     RowShards& row_shards) {
  Exchange exchange(p, pieces, row_shards);
  const int64_t most = 16 * p.shards;
  for (int64_t i = 0; i < most && exchange.step(); ++i) {
  }
}

}  // namespace tessera::shard
