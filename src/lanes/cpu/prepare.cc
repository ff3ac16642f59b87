// lanes/cpu/prepare.cc: the legal keys of every query, as intervals.
#include <algorithm>
#include <atomic>
#include <utility>

#include "base/fail.h"
#include "base/integers.h"
#include "base/trace.h"
#include "lanes/cpu/tasks.h"
#include "lanes/cpu/work.h"
#include "mask/query_keys.h"
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
  Reader(const mask::Sweep& pairs, int64_t pieces_a_list)
      : queries_(pairs), q_len_(pairs.bound.q_len), pieces_(pieces_a_list) {}

  // Stops, and returns false, at more than `most` spans.
  bool read(int64_t number, int64_t most, Piece& piece) {
    const int64_t list = number / pieces_;
    if (list != list_) queries_.begin_list(list);
    list_ = list;
    const int64_t begin = number % pieces_ * kPiece;
    const auto add_all = [&](int64_t first, int64_t last,
                             const std::vector<mask::Interval>& keys) {
      for (int64_t q = first; q < last; ++q) {
        add(keys, queries_.past(q), piece);
        if (static_cast<int64_t>(piece.spans.size()) > most) return false;
      }
      return true;
    };
    return queries_.each(begin, std::min(begin + kPiece, q_len_), add_all);
  }

 private:
  static void add(const std::vector<mask::Interval>& keys, int64_t past,
                  Piece& piece) {
    const size_t before = piece.spans.size();
    for (const mask::Interval& s : keys) {
      if (s.begin >= past) break;
      piece.spans.push_back({static_cast<int32_t>(s.begin),
                             static_cast<int32_t>(std::min(s.end, past))});
    }
    piece.counts.push_back(static_cast<int32_t>(piece.spans.size() - before));
  }

  mask::QueryKeys queries_;
  int64_t q_len_, pieces_;
  int64_t list_ = -1;
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
  // A reader scans all keys of a batch row once, so each reader gets a run of
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
