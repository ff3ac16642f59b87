// lanes/cpu/forward.cc: runs the forward pass by blocks of queries.
//
// A task is one block of queries of one head. It writes rows that no other task
// writes, and its sums depend on the plan alone, so the bits of a result do not
// depend on the threads. Blocks run in descending order of work; the heads of
// one block follow each other, since they share its chunks.
#include <algorithm>

#include "base/fail.h"
#include "base/integers.h"
#include "base/isa.h"
#include "base/trace.h"
#include "lanes/cpu/blocks.h"
#include "lanes/cpu/call.h"
#include "lanes/cpu/chunks.h"
#include "lanes/cpu/decode.h"
#include "lanes/cpu/scratch.h"
#include "lanes/cpu/tasks.h"
#include "lanes/cpu/work.h"

namespace tessera::cpu {
namespace {

struct Block {
  int64_t list = 0, q_begin = 0, q_end = 0;
  int64_t cost = 0;  // pairs of its active tiles
};

// Queries of a block: fewer if there are few blocks, so that these spread over
// many threads. Depends on sizes alone, never on the number of threads.
int64_t rows_of_block(const CpuWork::State& work, const AttentionShape& shape) {
  int64_t rows = kernels::kForwardRows;
  const int64_t most_dim = std::max(shape.head_dim, shape.v_head_dim);
  if (most_dim > 128) rows /= 2;  // a block's sums stay in the L2 cache
  while (rows > 64 &&
         ceil_div(work.sizes.q_len, rows) * work.sizes.batch * shape.heads <
             64) {
    rows /= 2;
  }
  return rows;
}

std::vector<Block> blocks_of(const CpuWork::State& work, int64_t rows) {
  std::vector<Block> blocks;
  const Worklist& w = work.forward;
  for (int64_t list = 0; list < w.lists; ++list) {
    for (int64_t q = 0; q < work.sizes.q_len; q += rows) {
      Block block{list, q, std::min(q + rows, work.sizes.q_len), 0};
      for (int64_t r = q / work.tile.q; r <= (block.q_end - 1) / work.tile.q;
           ++r) {
        block.cost += static_cast<int64_t>(w.row(list, r).size());
      }
      block.cost *= block.q_end - q;
      blocks.push_back(block);
    }
  }
  std::stable_sort(
      blocks.begin(), blocks.end(),
      [](const Block& a, const Block& b) { return a.cost > b.cost; });
  return blocks;
}

// What a worker keeps between tasks.
struct Worker {
  int64_t block = -1;
  QueryBlock chunks;
  int64_t pairs = 0;
  int64_t tiles = 0;
};

bool is_stopped(const void* flag) {
  return static_cast<const StopFlag*>(flag)->stopped();
}

}  // namespace

Result<Isa> check_call(const CpuWork::State& work, const AttentionShape& shape,
                       const ForwardTensors& tensors,
                       const CpuOptions& options) {
  if (auto e = check_options(options); !e) return e.error();
  if (auto e = lanes::check_forward("cpu", work.sizes, shape, tensors); !e) {
    return e.error();
  }
  return choose_isa(options.isa);
}

Result<CpuRun> run_blocks(const CpuWork::State& work,
                          const AttentionShape& shape,
                          const ForwardTensors& tensors,
                          std::span<float> entropy, const CpuOptions& options,
                          Isa isa, const StopFlag* stop) {
  const kernels::ForwardVariant& variant =
      variant_for(kernels::forward_variants(), tensors.q.dtype, isa);
  Tasks tasks(options, stop);
  const int64_t q_len = work.sizes.q_len;
  const std::vector<Block> blocks = blocks_of(work, rows_of_block(work, shape));
  const HeadMap map{shape.heads, shape.kv_heads, work.sizes.heads};
  const int64_t group = shape.heads / work.sizes.heads;
  const float scale = scale_of(shape);
  const auto scratch = static_cast<size_t>(
      kernels::forward_scratch(shape.head_dim, shape.v_head_dim));

  std::vector<Worker> workers(static_cast<size_t>(tasks.threads()));
  const auto count = static_cast<int64_t>(blocks.size()) * group;
  const auto run_task = [&](int64_t number, int worker_number) {
    Worker& worker = workers[static_cast<size_t>(worker_number)];
    const Block& block = blocks[static_cast<size_t>(number / group)];
    if (worker.block != number / group) {
      worker.chunks.read(work, block.list, block.q_begin, block.q_end);
      worker.block = number / group;
    }
    const int64_t b = block.list / work.sizes.heads;
    const int64_t h = block.list % work.sizes.heads * group + number % group;
    const int64_t kv = map.kv_head(h);
    kernels::ForwardTask task;
    task.dtype = tensors.q.dtype;
    task.rows = block.q_end - block.q_begin;
    task.head_dim = shape.head_dim;
    task.v_head_dim = shape.v_head_dim;
    task.q = element(tensors.q, b, h, block.q_begin);
    task.k = element(tensors.k, b, kv, 0);
    task.v = element(tensors.v, b, kv, 0);
    task.out = element(tensors.out, b, h, block.q_begin);
    task.q_stride = tensors.q.token_stride;
    task.k_stride = tensors.k.token_stride;
    task.v_stride = tensors.v.token_stride;
    task.out_stride = tensors.out.token_stride;
    const int64_t row = (b * shape.heads + h) * q_len + block.q_begin;
    if (!tensors.lse.empty()) task.lse = tensors.lse.data() + row;
    if (!entropy.empty()) task.entropy = entropy.data() + row;
    task.scale = scale;
    task.softcap = static_cast<float>(shape.softcap);
    if (tensors.sink_logits) task.sink_logit = tensors.sink_logits->data() + h;
    task.chunks = worker.chunks.chunks().data();
    task.chunk_count = static_cast<int64_t>(worker.chunks.chunks().size());
    task.live = worker.chunks.live();
    task.scratch = thread_scratch().floats(scratch);
    task.pairs = &worker.pairs;
    task.stop = tasks.stop();
    if (task.stop != nullptr) task.stopped = &is_stopped;
    variant.run(task);
    worker.tiles += tiles_of(work.forward, block.list, work.tile.q,
                             block.q_begin, block.q_end);
  };
  auto done = tasks.run("blocks of queries", count, options.progress, run_task);
  if (!done) return done.error();
  int64_t tiles = 0;
  for (const Worker& worker : workers) tiles += worker.tiles;
  CpuRun run = count_tiles(tiles, work.forward, shape, work.sizes);
  run.isa = variant.isa;
  run.threads = tasks.threads();
  for (const Worker& worker : workers) run.pairs_run += worker.pairs;
  return run;
}

Result<CpuRun> cpu_forward(const CpuWork& cpu_work, const AttentionShape& shape,
                           const ForwardTensors& tensors,
                           const CpuOptions& options, const StopFlag* stop) {
  const TraceSpan span("cpu", "forward");
  const CpuWork::State& work = cpu_work.state();
  auto isa = check_call(work, shape, tensors, options);
  if (!isa) return isa.error();
  if (work.sizes.q_len <= kDecodeQueries) {
    return decode(work, shape, tensors, options, *isa, stop);
  }
  return run_blocks(work, shape, tensors, {}, options, *isa, stop);
}

}  // namespace tessera::cpu
