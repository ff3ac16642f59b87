// shard/repair.cc: the last steps that bring shards within their limits, with
// traffic counted exactly.
#include <algorithm>
#include <array>
#include <bit>

#include "shard/place.h"

namespace tessera::shard {
namespace {

// Rows [begin, end) of one shard go to another, and [back, back_end) come back.
struct Step {
  double rank = 0;  // guess that selects candidates; lower is better
  int64_t begin = 0, end = 0;
  int64_t back = 0, back_end = 0;
  int32_t to = 0;
};

// Rows [begin, begin + rows) that may leave a shard, and the shard's excess
// over its limits without them (over_work: without their work only, if as many
// rows come back).
struct Leaving {
  int64_t begin, rows, work;
  double over, over_work;
};
struct Back {
  int64_t begin, work;
};

constexpr double kSlack = 1e-9;  // well above the rounding error of ranks
constexpr std::array<int64_t, 13> kLengths = {1,  2,  3,  4,  6,  8,  12,
                                              16, 24, 32, 48, 64, 128};
constexpr size_t kPowers = 8;  // powers of two in kLengths

class Repair {
 public:
  Repair(Loads& loads, const RepairOptions& options)
      : loads_(loads),
        options_(options),
        p_(loads.problem()),
        n_(static_cast<int32_t>(p_.shards)),
        runs_(static_cast<size_t>(n_)) {
    for (int64_t r = 0; r < p_.rows(); ++r) add_to_runs(r);
  }

  bool step() {
    from_ = worst();
    if (from_ < 0) return false;
    by_work_ = static_cast<double>(loads_.work(from_)) > p_.work_cap;
    find_leaving();
    steps_.clear();
    worst_rank_ = -options_.over * 1e-9;  // a step must help
    for (const int32_t to : targets()) {
      over_ = loads_.over(from_) + loads_.over(to);
      collect(to);
    }
    if (steps_.empty()) return false;
    take_best();
    return true;
  }

 private:
  int32_t worst() const {
    int32_t out = -1;
    double most = 1e-12;
    for (int32_t s = 0; s < n_; ++s) {
      if (loads_.over(s) > most) {
        most = loads_.over(s);
        out = s;
      }
    }
    return out;
  }

  // Runs of adjacent rows in one document on one shard.
  void add_to_runs(int64_t row) {
    std::vector<Piece>& runs = runs_[static_cast<size_t>(loads_.shard_of(row))];
    if (!runs.empty() && runs.back().end == row &&
        p_.joined[static_cast<size_t>(row)]) {
      ++runs.back().end;
    } else {
      runs.push_back({row, row + 1});
    }
  }

  void find_runs(int32_t s) {
    runs_[static_cast<size_t>(s)].clear();
    const RowShards& row_shards = loads_.row_shards();
    for (auto at = row_shards.begin();
         (at = std::find(at, row_shards.end(), s)) != row_shards.end(); ++at) {
      add_to_runs(at - row_shards.begin());
    }
  }

  std::vector<int32_t> targets() const {
    std::vector<int32_t> all;
    for (int32_t s = 0; s < n_; ++s) {
      if (s != from_) all.push_back(s);
    }
    const auto load = [&](int32_t s) {
      return by_work_ ? loads_.work(s) : loads_.rows(s);
    };
    std::sort(all.begin(), all.end(), [&](int32_t a, int32_t b) {
      return load(a) != load(b) ? load(a) < load(b) : a < b;
    });
    if (all.size() > options_.lightest) all.resize(options_.lightest);
    for (const int32_t d : {1, n_ - 1, 2, n_ - 2}) {
      const auto s = static_cast<int32_t>((from_ + d) % n_);
      if (s != from_ && std::find(all.begin(), all.end(), s) == all.end()) {
        all.push_back(s);
      }
    }
    return all;
  }

  // Finds the rows that may leave the shard, for any target.
  void find_leaving() {
    leaving_.clear();
    for (const Piece& run : runs_[static_cast<size_t>(from_)]) {
      for (const int64_t length : kLengths) {
        const int64_t k = std::min(length, run.end - run.begin);
        for (const bool at_end : {false, true}) {
          if (at_end && k == run.end - run.begin) break;  // the same rows
          const int64_t begin = at_end ? run.end - k : run.begin;
          const int64_t work = p_.work(begin, begin + k);
          const double over =
              loads_.over(loads_.work(from_) - work, loads_.rows(from_) - k);
          const double over_work =
              loads_.over(loads_.work(from_) - work, loads_.rows(from_));
          leaving_.push_back({begin, k, work, over, over_work});
        }
        if (k < length) break;
      }
    }
  }

  // Finds the rows that may come back from `to`, by count: powers of two.
  void find_backs(int32_t to) {
    for (size_t i = 0; i < kPowers; ++i) {
      const auto k = int64_t{1} << i;
      backs_[i].clear();
      for (const Piece& run : runs_[static_cast<size_t>(to)]) {
        const int64_t length = run.end - run.begin;
        if (length < k) continue;
        backs_[i].push_back({run.begin, p_.work(run.begin, run.begin + k)});
        if (length > k) {
          backs_[i].push_back({run.end - k, p_.work(run.end - k, run.end)});
        }
      }
    }
  }

  void collect(int32_t to) {
    const bool swaps = by_work_ && !p_.tasks;
    if (swaps) find_backs(to);
    const double own_over = loads_.over(from_);
    // Only from_ can improve, so its own excess can rule out a step.
    const auto is_none = [&](double over) {
      return options_.over * (over - own_over) - kSlack >= worst_rank_;
    };
    const int64_t work = loads_.work(to), rows = loads_.rows(to);
    for (const Leaving& l : leaving_) {
      if (!is_none(l.over)) {
        consider({0, l.begin, l.begin + l.rows, 0, 0, to},
                 l.over + loads_.over(work + l.work, rows + l.rows) - over_);
      }
      if (swaps && std::has_single_bit(static_cast<uint64_t>(l.rows)) &&
          !is_none(l.over_work)) {
        collect_swaps(l, to);
      }
    }
  }

  // Collects swaps in which as many rows come back, with less work.
  void collect_swaps(const Leaving& l, int32_t to) {
    const int64_t own_work = loads_.work(from_), own_rows = loads_.rows(from_);
    const int64_t work = loads_.work(to), rows = loads_.rows(to);
    const auto power = std::countr_zero(static_cast<uint64_t>(l.rows));
    for (const Back& back : backs_[static_cast<size_t>(power)]) {
      const int64_t less = l.work - back.work;
      if (less <= 0) continue;
      consider(
          {0, l.begin, l.begin + l.rows, back.begin, back.begin + l.rows, to},
          loads_.over(own_work - less, own_rows) +
              loads_.over(work + less, rows) - over_);
    }
  }

  // Keeps the best few steps by a guess that counts no traffic. `gain`: the
  // change of the two shards' excess over their limits.
  void consider(Step step, double gain) {
    step.rank = options_.over * gain;
    if (step.rank >= worst_rank_) return;
    const bool full = steps_.size() == options_.tried;
    step.rank += guess(step.begin, step.end, step.to) +
                 guess(step.back, step.back_end, from_);
    if (full) {
      if (step.rank >= worst_rank_) return;
      steps_.pop_back();
    }
    steps_.insert(std::upper_bound(steps_.begin(), steps_.end(), step,
                                   [](const Step& a, const Step& b) {
                                     return a.rank < b.rank;
                                   }),
                  step);
    if (steps_.size() == options_.tried) worst_rank_ = steps_.back().rank;
  }

  // A guess of the traffic added by moving these rows, relative to an
  // all-gather: little if they join rows of their document or are all of it.
  double guess(int64_t begin, int64_t end, int32_t to) const {
    if (begin >= end) return 0;
    const auto joined = [&](int64_t row) {
      return row < p_.rows() && p_.joined[static_cast<size_t>(row)] != 0;
    };
    const double all = 1 + 0.5 * static_cast<double>(n_);
    const auto rows = static_cast<double>(end - begin);
    double bytes = 0;
    if (p_.tasks) {
      bytes = (rows + loads_.more_tasks_sent(begin, end, to)) *
              static_cast<double>(p_.row_bytes);
    }
    const bool joins = (joined(begin) && loads_.shard_of(begin - 1) == to) ||
                       (joined(end) && loads_.shard_of(end) == to);
    double tiles = 0;
    if (joins) {
      tiles = 2 * rows;
    } else if (!p_.tasks && !joined(begin) && !joined(end)) {
      tiles = 4;
    } else {
      tiles = all * static_cast<double>(std::max(p_.needs(begin).size(),
                                                 p_.needs(end - 1).size()));
    }
    bytes += tiles * static_cast<double>(p_.kv_bytes);
    return bytes / p_.all_gather();
  }

  void apply(const Step& s) {
    loads_.move(s.begin, s.end, s.to);
    loads_.move(s.back, s.back_end, from_);
  }
  void undo(const Step& s) {
    loads_.move(s.back, s.back_end, s.to);
    loads_.move(s.begin, s.end, from_);
  }

  void take_best() {
    size_t best = 0;
    double least = 0;
    for (size_t i = 0; i < steps_.size(); ++i) {
      const Step& s = steps_[i];
      // The change of excess is compared, since steps go to different shards.
      double cost = -options_.over * (loads_.over(from_) + loads_.over(s.to));
      apply(s);
      cost += options_.over * (loads_.over(from_) + loads_.over(s.to)) +
              loads_.needed() + loads_.sent_half_rounded();
      undo(s);
      if (i == 0 || cost < least) {
        least = cost;
        best = i;
      }
    }
    apply(steps_[best]);
    find_runs(from_);
    find_runs(steps_[best].to);
  }

  Loads& loads_;
  const RepairOptions& options_;
  const Problem& p_;
  const int32_t n_;
  int32_t from_ = -1;
  bool by_work_ = false;   // from_ has too much work, else too many rows
  double over_ = 0;        // excess of from_ and the target shard
  double worst_rank_ = 0;  // a candidate must rank below this
  std::vector<std::vector<Piece>> runs_;
  std::vector<Leaving> leaving_;
  std::array<std::vector<Back>, kPowers> backs_;
  std::vector<Step> steps_;
};

}  // namespace

void repair(Loads& loads, const RepairOptions& options) {
  // With a dense mask a row needs so many columns that counting takes seconds.
  constexpr int64_t kMaxCounted = int64_t{1} << 28;
  Repair repair(loads, options);
  for (int64_t i = 0; i < options.steps && loads.counted() < kMaxCounted; ++i) {
    if (!repair.step()) return;
  }
}

}  // namespace tessera::shard
