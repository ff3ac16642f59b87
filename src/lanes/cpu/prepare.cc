// lanes/cpu/prepare.cc: the legal keys of every query, as intervals.
//
// A tile of 1 x 1 is a pair, so the classifier set to that size tells the keys
// of one query as intervals, straight from the facts. That takes some 40 ns a
// query and is shared by all heads. Where nothing but the order of time tells
// neighbours apart, as the queries of a document or those that pick alike, the
// last one's keys, cut where each stands, are those of all.
#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "base/fail.h"
#include "base/integers.h"
#include "base/trace.h"
#include "lanes/cpu/tasks.h"
#include "lanes/cpu/work.h"
#include "mask/sweep.h"
#include "plan/batch_state.h"

namespace tessera::cpu {
namespace {

constexpr int64_t kPiece = 1024;  // queries of one task

struct Piece {
  std::vector<int32_t> counts;  // spans of each query
  std::vector<KeySpan> spans;
};

// Reads pieces in ascending order.
class Reader {
 public:
  Reader(const mask::Sweep& sweep, int64_t pieces_a_list)
      : sweep_(sweep), pieces_(pieces_a_list), pairs_(sweep.bound) {}

  // Gives up, and says no, at more than `most` spans.
  bool read(int64_t number, int64_t most, Piece& piece) {
    const int64_t list = number / pieces_;
    if (list != list_) {
      const int64_t heads = sweep_.bound.heads;
      const auto groups = static_cast<int64_t>(sweep_.programs.size());
      if (list_ < 0 || list / heads != list_ / heads) {
        pairs_.begin_batch_row(list / heads);
      }
      const auto group = static_cast<size_t>(list % heads * groups / heads);
      const mask::Program& program = sweep_.programs[group];
      pairs_.begin_list(program, list % heads);
      // Of all distances, at most those of the future are told apart.
      cut_ = program.reach_end == 1;
      shares_ = program.thresholds.size() == (cut_ ? 1 : 0);
      offset_ = sweep_.bound.rows[static_cast<size_t>(list / heads)].q_offset;
      list_ = list;
    }
    const int64_t begin = number % pieces_ * kPiece;
    const int64_t end = std::min(begin + kPiece, sweep_.bound.q_len);
    for (int64_t q = begin; q < end;) {
      const int64_t alike = shares_ ? pairs_.alike_until(q, end) : q + 1;
      read_keys(alike - 1);
      for (; q < alike; ++q) {
        add(shares_ && cut_ ? q + offset_ + 1 : mask::kFar, piece);
        if (static_cast<int64_t>(piece.spans.size()) > most) return false;
      }
    }
    return true;
  }

 private:
  // The keys of one query, in intervals that do not touch.
  void read_keys(int64_t q) {
    keys_.clear();
    for (const mask::Span& s : pairs_.tile_row(q)) {
      if (!keys_.empty() && keys_.back().end == s.begin) {
        keys_.back().end = s.end;
      } else {
        keys_.push_back({s.begin, s.end});
      }
    }
  }
  // Of these, those below `past` as the next query's.
  void add(int64_t past, Piece& piece) {
    const size_t before = piece.spans.size();
    for (const KeySpan& s : keys_) {
      if (s.begin >= past) break;
      piece.spans.push_back(s);
    }
    const size_t after = piece.spans.size();
    if (after > before && piece.spans.back().end > past) {
      piece.spans.back().end = static_cast<int32_t>(past);
    }
    piece.counts.push_back(static_cast<int32_t>(after - before));
  }

  const mask::Sweep& sweep_;
  int64_t pieces_;
  int64_t list_ = -1;
  mask::Classifier pairs_;
  bool cut_ = false;     // no key after its query is legal
  bool shares_ = false;  // that is all that distances say
  int64_t offset_ = 0;
  std::vector<KeySpan> keys_;
};

}  // namespace

CpuWork::CpuWork(std::unique_ptr<State> state) : state_(std::move(state)) {}
CpuWork::CpuWork(CpuWork&&) noexcept = default;
CpuWork& CpuWork::operator=(CpuWork&&) noexcept = default;
CpuWork::~CpuWork() = default;

Result<CpuWork> cpu_prepare(const Batch& batch, const CpuOptions& options,
                            CpuWork* before) {
  const TraceSpan span("cpu", "prepare");
  if (auto e = check_options(options); !e) return e.error();
  auto read = plan::read_batch(batch, "cpu");
  if (!read) return read.error();
  auto state = std::make_unique<CpuWork::State>(batch);
  if (before) state->take_memory(before->state());
  const mask::Sweep sweep = mask::with_tile((*read)->sweep, {1, 1});
  const int64_t pieces_a_list = ceil_div(state->sizes.q_len, kPiece);
  const int64_t pieces = sweep.lists() * pieces_a_list;
  Tasks tasks(options);
  std::vector<Piece> found(static_cast<size_t>(pieces));
  // A reader looks at all keys of a batch row once, so each gets a run of
  // pieces.
  const int64_t runs = std::min<int64_t>(pieces, tasks.threads());
  std::atomic<int64_t> total{0};
  const auto read_run = [&](int64_t run, int) {
    Reader reader(sweep, pieces_a_list);
    for (int64_t i = pieces * run / runs; i < pieces * (run + 1) / runs; ++i) {
      Piece& piece = found[static_cast<size_t>(i)];
      if (total.load(std::memory_order_relaxed) > kMaxKeySpans ||
          !reader.read(i, kMaxKeySpans, piece)) {
        total = kMaxKeySpans + 1;
        return;
      }
      total += static_cast<int64_t>(piece.spans.size());
    }
  };
  if (auto e = tasks.run("runs of queries", runs, read_run); !e)
    return e.error();
  if (total > kMaxKeySpans) {
    return over_limit("cpu",
                      "the legal keys of all queries must be at most {} "
                      "intervals, found more for {} queries",
                      kMaxKeySpans, sweep.lists() * state->sizes.q_len);
  }
  state->span_start.reserve(
      static_cast<size_t>(sweep.lists() * state->sizes.q_len) + 1);
  state->spans.reserve(static_cast<size_t>(total.load()));
  int64_t at = 0;
  state->span_start.push_back(0);
  for (Piece& piece : found) {
    for (const int32_t n : piece.counts) state->span_start.push_back(at += n);
    state->spans.insert(state->spans.end(), piece.spans.begin(),
                        piece.spans.end());
    piece = {};
  }
  return CpuWork(std::move(state));
}

}  // namespace tessera::cpu
