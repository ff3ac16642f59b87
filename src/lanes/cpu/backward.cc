// lanes/cpu/backward.cc: runs the backward pass by blocks of keys.
//
// A task is one block of keys of one K/V head: it writes their dk and dv once.
// Many tasks add to the same rows of dq, in a fixed order: each chunk of
// queries counts the blocks added to it, and the n-th block that meets the
// chunk (from 0) waits for the count n. So every sum has one order, that of the
// keys, for any number of threads, and no float is added atomically. Tasks are
// numbered block by block, with the heads of a block side by side. A task waits
// only for lower numbers, which were handed out before (base/threads.h).
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <thread>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/fail.h"
#include "base/integers.h"
#include "base/isa.h"
#include "base/trace.h"
#include "lanes/cpu/call.h"
#include "lanes/cpu/chunks.h"
#include "lanes/cpu/scratch.h"
#include "lanes/cpu/tasks.h"
#include "lanes/cpu/work.h"

namespace tessera::cpu {
namespace {

constexpr double kLog2e = 1.4426950408889634;

// The log-sum-exp to base 2. A finite one stays finite, since a score of -inf
// minus -inf would be NaN.
float in_log2(float lse) {
  constexpr double kMaxFloat = std::numeric_limits<float>::max();
  const double power = lse * kLog2e;
  return static_cast<float>(
      std::isfinite(lse) ? std::clamp(power, -kMaxFloat, kMaxFloat) : power);
}

// The chunks of queries that each block of keys meets: 8 bytes for each place.
struct ListPlaces {
  std::vector<size_t> first;  // of each block in `places`, and the end
  std::vector<KeyBlock::Place> places;  // ascending within a block
  std::vector<int32_t> turn;            // of each place: blocks that add before
  std::vector<int32_t> turns;           // of each chunk: blocks that add to it

  std::span<const KeyBlock::Place> of(int64_t block) const {
    const size_t at = first[static_cast<size_t>(block)];
    return {places.data() + at, first[static_cast<size_t>(block) + 1] - at};
  }
};

ListPlaces places_of(const CpuWork::State& work, int64_t list) {
  const auto [q_len, kv_len] = std::pair(work.sizes.q_len, work.sizes.kv_len);
  const Tile tile = work.tile;
  ListPlaces all;
  all.turns.resize(
      static_cast<size_t>(ceil_div(q_len, kernels::kBackwardRows)));
  std::vector<ActiveColumn> rows;
  for (int64_t k = 0; k < kv_len; k += kernels::kBackwardKeys) {
    const int64_t k_end = std::min(k + kernels::kBackwardKeys, kv_len);
    active_columns(work.transposed, list, k / tile.kv,
                   (k_end - 1) / tile.kv + 1, rows);
    const size_t first = all.places.size();
    all.first.push_back(first);
    // Tiles and chunks need not be aligned; both ascend.
    int64_t covered = 0;  // queries of the last chunk that full tiles cover
    for (const ActiveColumn& tile_row : rows) {
      const int64_t q_begin = tile_row.column * tile.q;
      const int64_t q_end = std::min(q_begin + tile.q, q_len);
      for (int64_t c = q_begin / kernels::kBackwardRows;
           c * kernels::kBackwardRows < q_end; ++c) {
        const int64_t begin = c * kernels::kBackwardRows;
        const int64_t end = std::min(begin + kernels::kBackwardRows, q_len);
        if (all.places.size() == first || all.places.back().chunk != c) {
          all.places.push_back({static_cast<uint32_t>(c) & 0x7fffffff, 0});
          all.turn.push_back(all.turns[static_cast<size_t>(c)]++);
          covered = 0;
        }
        if (tile_row.full) {
          covered += std::min(end, q_end) - std::max(begin, q_begin);
        }
        all.places.back().full = covered == end - begin ? 1 : 0;
      }
    }
  }
  all.first.push_back(all.places.size());
  return all;
}

// Per-query inputs of the kernels beside the tensors: [batch, heads, q_len].
struct Rows {
  std::vector<float> lse;    // to base 2; 0 where nothing is legal
  std::vector<float> delta;  // dout . out - dlse
  std::vector<uint8_t> live;
  std::vector<uint8_t> finite;  // per chunk: q and dout are finite
};

// Waits for turn `mine`. False if a task failed: the turn may never come.
bool wait_for(const std::atomic<int32_t>& turn, int32_t mine,
              const Tasks& tasks) {
  for (int spins = 0; turn.load(std::memory_order_acquire) != mine; ++spins) {
    if (tasks.failed()) return false;
    if (spins < 4096) {
#if defined(__x86_64__)
      _mm_pause();
#endif
    } else {
      std::this_thread::yield();
    }
  }
  return true;
}

// What a worker keeps between tasks.
struct Worker {
  int64_t list = -1, block = -1;
  KeyBlock chunks;
  int64_t pairs = 0, tiles = 0;
};

class Backward {
 public:
  Backward(const CpuWork::State& work, const AttentionShape& shape,
           const ForwardTensors& tensors, const Gradients& gradients,
           const kernels::BackwardKernel& kernel, Tasks& tasks)
      : work_(work),
        shape_(shape),
        tensors_(tensors),
        gradients_(gradients),
        kernel_(kernel),
        tasks_(tasks),
        map_{shape.heads, shape.kv_heads, work.sizes.heads},
        dtype_(tensors.q.dtype),
        scale_(scale_of(shape)),
        chunks_(ceil_div(work.sizes.q_len, kernels::kBackwardRows)),
        blocks_(ceil_div(work.sizes.kv_len, kernels::kBackwardKeys)),
        row_floats_(kernels::dq_row_floats(shape.head_dim)) {}

  // Adds the tiles and pairs that ran to `run`.
  Result<void> run(const std::function<void(double)>& progress, CpuRun& run) {
    const int64_t lists = work_.sizes.batch * work_.sizes.heads;
    places_.resize(static_cast<size_t>(lists));
    auto placed = tasks_.run("places", lists, [&](int64_t list, int) {
      places_[static_cast<size_t>(list)] = places_of(work_, list);
    });
    if (!placed) return placed;
    if (auto e = prepare_rows(); !e) return e;
    const int64_t kv_tasks = work_.sizes.batch * shape_.kv_heads;
    workers_.resize(static_cast<size_t>(tasks_.threads()));
    auto ran = tasks_.run("blocks of keys", blocks_ * kv_tasks, progress,
                          [&](int64_t number, int worker) {
                            run_block(number / kv_tasks,
                                      number % kv_tasks / shape_.kv_heads,
                                      number % shape_.kv_heads,
                                      workers_[static_cast<size_t>(worker)]);
                          });
    if (!ran) return ran;
    if (tensors_.sink_logits) sum_sinks();
    for (const Worker& worker : workers_) {
      run.tiles_run += worker.tiles;
      run.pairs_run += worker.pairs;
    }
    return {};
  }

 private:
  int64_t row_of(int64_t b, int64_t h, int64_t q) const {
    return (b * shape_.heads + h) * work_.sizes.q_len + q;
  }
  int64_t list_of(int64_t b, int64_t h) const {
    return b * work_.sizes.heads + map_.plan_head(h);
  }

  size_t chunk_of(int64_t b, int64_t h, int64_t q) const {
    return static_cast<size_t>((b * shape_.heads + h) * chunks_ +
                               q / kernels::kBackwardRows);
  }

  // Fills the rows of all queries, makes room for dq, and writes a dq of zeros
  // for chunks that no block meets.
  Result<void> prepare_rows() {
    const int64_t heads = work_.sizes.batch * shape_.heads;
    const auto n = static_cast<size_t>(heads * work_.sizes.q_len);
    rows_.lse.resize(n);
    rows_.delta.resize(n);
    rows_.live.resize(n);
    rows_.finite.resize(static_cast<size_t>(heads * chunks_));
    const auto chunks = static_cast<size_t>(heads * chunks_);
    turns_ = std::make_unique<std::atomic<int32_t>[]>(chunks);
    // Uninitialized: the first block that adds to a chunk clears it.
    dq_ = scratch_.floats(n * static_cast<size_t>(row_floats_));
    return tasks_.run("rows", heads * chunks_, [&](int64_t number, int) {
      const int64_t b = number / chunks_ / shape_.heads;
      const int64_t h = number / chunks_ % shape_.heads;
      const int64_t q = number % chunks_ * kernels::kBackwardRows;
      prepare_chunk(b, h, q,
                    std::min(kernels::kBackwardRows, work_.sizes.q_len - q));
    });
  }

  void prepare_chunk(int64_t b, int64_t h, int64_t q_begin, int64_t rows) {
    const auto row = static_cast<size_t>(row_of(b, h, q_begin));
    kernel_.delta({dtype_, rows, shape_.v_head_dim,
                   element(gradients_.dout, b, h, q_begin),
                   element(tensors_.out, b, h, q_begin),
                   gradients_.dout.token_stride, tensors_.out.token_stride,
                   rows_.delta.data() + row});
    const int64_t list = list_of(b, h);
    for (int64_t r = 0; r < rows; ++r) {
      const size_t i = row + static_cast<size_t>(r);
      const bool live = work_.has_key(list, q_begin + r);
      rows_.live[i] = live ? 1 : 0;
      // Without a legal key dout has no effect, even if it is NaN.
      if (!live) rows_.delta[i] = 0;
      if (!gradients_.dlse.empty()) rows_.delta[i] -= gradients_.dlse[i];
      rows_.lse[i] = live ? in_log2(tensors_.lse[i]) : 0.0f;
    }
    // If dout is not finite, delta is not either, so delta is checked instead.
    bool finite = kernel_.finite(
        {dtype_, rows, shape_.head_dim, element(tensors_.q, b, h, q_begin),
         tensors_.q.token_stride, rows_.live.data() + row});
    for (int64_t r = 0; r < rows; ++r) {
      finite &= std::isfinite(rows_.delta[row + static_cast<size_t>(r)]);
    }
    rows_.finite[chunk_of(b, h, q_begin)] = finite ? 1 : 0;
    const auto chunk = static_cast<size_t>(q_begin / kernels::kBackwardRows);
    if (places_[static_cast<size_t>(list)].turns[chunk] == 0) {
      write_dq(b, h, q_begin, rows, true);
    }
  }

  float* dq_of(int64_t b, int64_t h, int64_t q) {
    return dq_ + row_of(b, h, q) * row_floats_;
  }

  void write_dq(int64_t b, int64_t h, int64_t q_begin, int64_t rows,
                bool zero) {
    float* const sum = dq_of(b, h, q_begin);
    if (zero) clear_dq(sum, rows);
    kernel_.write_dq({dtype_, rows, shape_.head_dim, sum, row_floats_, scale_,
                      element(gradients_.dq, b, h, q_begin),
                      gradients_.dq.token_stride});
  }
  void clear_dq(float* sum, int64_t rows) const {
    std::fill_n(sum, rows * row_floats_, 0.0f);
  }

  void run_block(int64_t number, int64_t b, int64_t kv, Worker& worker) {
    const int64_t k_begin = number * kernels::kBackwardKeys;
    kernels::BackwardBlock block;
    block.dtype = dtype_;
    block.keys = std::min(kernels::kBackwardKeys, work_.sizes.kv_len - k_begin);
    block.head_dim = shape_.head_dim;
    block.v_head_dim = shape_.v_head_dim;
    block.k = element(tensors_.k, b, kv, k_begin);
    block.v = element(tensors_.v, b, kv, k_begin);
    block.dk = element(gradients_.dk, b, kv, k_begin);
    block.dv = element(gradients_.dv, b, kv, k_begin);
    block.k_stride = tensors_.k.token_stride;
    block.v_stride = tensors_.v.token_stride;
    block.dk_stride = gradients_.dk.token_stride;
    block.dv_stride = gradients_.dv.token_stride;
    block.scale = scale_;
    block.dq_row = row_floats_;
    block.softcap = static_cast<float>(shape_.softcap);
    block.scratch = thread_scratch().floats(static_cast<size_t>(
        kernels::backward_scratch(shape_.head_dim, shape_.v_head_dim)));

    const int64_t group = shape_.heads / shape_.kv_heads;
    block.pairs = &worker.pairs;

    std::vector<uint8_t> live;
    for (int64_t h = kv * group; h < (kv + 1) * group; ++h) {
      read_chunks(list_of(b, h), number, worker);
      // A key is live when any head of the group attends to it.
      if (worker.chunks.live() == nullptr) {
        live.clear();
        break;
      }
      live.resize(static_cast<size_t>(block.keys));
      for (size_t k = 0; k < live.size(); ++k) {
        live[k] |= worker.chunks.live()[k];
      }
    }
    block.live = live.empty() ? nullptr : live.data();
    kernel_.begin(block);
    for (int64_t h = kv * group; h < (kv + 1) * group; ++h) {
      read_chunks(list_of(b, h), number, worker);
      if (!add_head(block, b, h, number, worker)) return;
    }
    kernel_.end(block);
  }

  void read_chunks(int64_t list, int64_t number, Worker& worker) const {
    if (worker.list == list && worker.block == number) return;
    const int64_t k_begin = number * kernels::kBackwardKeys;
    worker.chunks.read(
        work_, list, k_begin,
        std::min(k_begin + kernels::kBackwardKeys, work_.sizes.kv_len),
        places_[static_cast<size_t>(list)].of(number));
    worker.list = list;
    worker.block = number;
  }

  // False if another task failed or the call was stopped.
  bool add_head(const kernels::BackwardBlock& block, int64_t b, int64_t h,
                int64_t number, Worker& worker) {
    const int64_t list_number = list_of(b, h);
    const ListPlaces& list = places_[static_cast<size_t>(list_number)];
    const auto places = list.of(number);
    const int32_t* const turns =
        list.turn.data() + list.first[static_cast<size_t>(number)];
    for (size_t i = 0; i < places.size(); ++i) {
      if (tasks_.stop_asked()) return false;
      const auto chunk = static_cast<size_t>(places[i].chunk);
      const int64_t q = int64_t{places[i].chunk} * kernels::kBackwardRows;
      const int64_t rows =
          std::min(kernels::kBackwardRows, work_.sizes.q_len - q);
      const auto row = static_cast<size_t>(row_of(b, h, q));
      std::atomic<int32_t>& turn = turns_[chunk_of(b, h, q)];
      if (!wait_for(turn, turns[i], tasks_)) return false;
      float* const dq = dq_of(b, h, q);
      if (turns[i] == 0) clear_dq(dq, rows);
      kernels::BackwardChunk task = worker.chunks.chunks()[i];
      if (task.rows > 0) {
        task.q = element(tensors_.q, b, h, q);
        task.dout = element(gradients_.dout, b, h, q);
        task.q_stride = tensors_.q.token_stride;
        task.dout_stride = gradients_.dout.token_stride;
        task.lse = rows_.lse.data() + row;
        task.delta = rows_.delta.data() + row;
        task.live = rows_.live.data() + row;
        task.finite = rows_.finite[chunk_of(b, h, q)] != 0;
        task.dq = dq;
        kernel_.add(block, task);
      }
      if (turns[i] + 1 == list.turns[chunk]) {
        write_dq(b, h, q, rows, false);
      }
      turn.store(turns[i] + 1, std::memory_order_release);
    }
    const int64_t k_begin = number * kernels::kBackwardKeys;
    worker.tiles += tiles_of(work_.transposed, list_number, work_.tile.kv,
                             k_begin, k_begin + block.keys);
    return true;
  }

  // The sink is one more key with a value of zero: its gradient is
  // -exp(sink - lse) delta, summed over batch rows and queries.
  void sum_sinks() {
    for (int64_t h = 0; h < shape_.heads; ++h) {
      const double sink = (*tensors_.sink_logits)[static_cast<size_t>(h)];
      double sum = 0;
      for (int64_t b = 0; b < work_.sizes.batch; ++b) {
        for (int64_t q = 0; q < work_.sizes.q_len; ++q) {
          const auto i = static_cast<size_t>(row_of(b, h, q));
          const double p =
              rows_.live[i] != 0 ? std::exp(sink - double{tensors_.lse[i]}) : 1;
          sum -= p * double{rows_.delta[i]};
        }
      }
      gradients_.dsink_logits[static_cast<size_t>(h)] = static_cast<float>(sum);
    }
  }

  const CpuWork::State& work_;
  const AttentionShape& shape_;
  const ForwardTensors& tensors_;
  const Gradients& gradients_;
  const kernels::BackwardKernel& kernel_;
  Tasks& tasks_;
  HeadMap map_;
  Dtype dtype_;
  float scale_;
  int64_t chunks_, blocks_, row_floats_;
  std::vector<ListPlaces> places_;
  Rows rows_;
  CallScratch scratch_;
  float* dq_ = nullptr;  // [batch, heads, q_len, row_floats_]
  std::unique_ptr<std::atomic<int32_t>[]> turns_;
  std::vector<Worker> workers_;
};

}  // namespace

Result<CpuRun> cpu_backward(const CpuWork& cpu_work,
                            const AttentionShape& shape,
                            const ForwardTensors& tensors,
                            const Gradients& gradients,
                            const CpuOptions& options, const StopFlag* stop) {
  const TraceSpan span("cpu", "backward");
  const CpuWork::State& work = cpu_work.state();
  if (auto e = check_options(options); !e) return e.error();
  if (auto e =
          lanes::check_backward("cpu", work.sizes, shape, tensors, gradients);
      !e) {
    return e.error();
  }
  auto isa = choose_isa(options.isa);
  if (!isa) return isa.error();
  const kernels::BackwardVariant& variant =
      variant_for(kernels::backward_variants(), tensors.q.dtype, *isa);
  Tasks tasks(options, stop);
  CpuRun ran;
  auto e = Backward(work, shape, tensors, gradients, variant.kernel(), tasks)
               .run(options.progress, ran);
  if (!e) return e.error();
  CpuRun run = count_tiles(ran.tiles_run, work.transposed, shape, work.sizes);
  run.pairs_run = ran.pairs_run;
  run.isa = variant.isa;
  run.threads = tasks.threads();
  return run;
}

}  // namespace tessera::cpu
