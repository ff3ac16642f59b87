// kernels/forward/forward_test.cc: the forward kernels alone, on every ISA of
// this machine, against fp64 within the bounds of lanes/reference/bound.cc.
#include "kernels/forward/forward.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <limits>

#include "lanes/cpu/call.h"
#include "tests/kernel_case.h"

namespace tessera::kernels {
namespace {

using testing::AttentionArrays;
using testing::each_variant;
using testing::edge_size;
using testing::Floats;
using testing::kernel_case;
using testing::KernelCase;
using testing::Layers;
using testing::layers_of;
using testing::Wanted;
using testing::wanted;

// The keys of some queries, cut into chunks at random.
struct Chunks {
  std::vector<KeyChunk> chunks;
  std::deque<Layers> layers;  // referenced by `chunks`
  std::deque<std::vector<uint8_t>> live;
};

void cut(const KernelCase& c, int64_t q_begin, int64_t q_end, uint64_t seed,
         Chunks& out) {
  std::mt19937_64 random(seed);
  for (int64_t k = 0; k < c.kv_len();) {
    if (!c.is_live(k, q_begin, q_end)) {
      ++k;
      continue;
    }
    const int64_t end =
        std::min(k + edge_size(random, kForwardKeys), c.kv_len());
    Layers layers =
        layers_of(c, q_begin, q_end, k, end, kRowStep, kForwardRows);
    KeyChunk chunk{k, static_cast<int32_t>(end - k), layers.count};
    std::vector<uint8_t> live;
    bool all = true;
    for (int64_t key = k; key < end; ++key) {
      live.push_back(c.is_live(key, q_begin, q_end) ? 1 : 0);
      all &= live.back() != 0;
    }
    out.layers.push_back(std::move(layers));
    out.live.push_back(std::move(live));
    if (chunk.layers > 0) {
      chunk.first = out.layers.back().first.data();
      chunk.last = out.layers.back().last.data();
    }
    if (!all) chunk.live = out.live.back().data();
    out.chunks.push_back(chunk);
    k = end;
  }
}

// Computed scores, and the most that whole panels allow.
struct Count {
  int64_t pairs = 0;
  int64_t most = 0;
};

// Runs all queries of a case in blocks of `rows`.
std::optional<std::string> run(const KernelCase& c, AttentionArrays& arrays,
                               const ForwardVariant& variant, int64_t rows,
                               Count& count) {
  const ForwardTensors t = arrays.forward(c.attention.lse);
  const AttentionShape& s = c.attention.shape;
  std::vector<uint8_t> has_key;
  for (int64_t q = 0; q < c.q_len(); ++q) has_key.push_back(c.has_key(q));
  for (int64_t q = 0; q < c.q_len(); q += rows) {
    Chunks chunks;
    const int64_t end = std::min(q + rows, c.q_len());
    cut(c, q, end, static_cast<uint64_t>(q) + c.attention.seed, chunks);
    const int64_t lanes = (end - q + kRowStep - 1) / kRowStep * kRowStep;
    for (const KeyChunk& chunk : chunks.chunks) {
      count.most += s.heads * lanes * (chunk.keys + 1);  // keys may be pairs
    }
    for (int64_t h = 0; h < s.heads; ++h) {
      Floats scratch(forward_scratch(s.head_dim, s.v_head_dim));
      ForwardTask task;
      task.dtype = t.q.dtype;
      task.rows = end - q;
      task.head_dim = s.head_dim;
      task.v_head_dim = s.v_head_dim;
      task.q = cpu::element(t.q, 0, h, q);
      task.k = cpu::element(t.k, 0, 0, 0);
      task.v = cpu::element(t.v, 0, 0, 0);
      task.out = cpu::element(t.out, 0, h, q);
      task.q_stride = t.q.token_stride;
      task.k_stride = t.k.token_stride;
      task.v_stride = t.v.token_stride;
      task.out_stride = t.out.token_stride;
      if (!t.lse.empty()) task.lse = t.lse.data() + h * c.q_len() + q;
      task.scale = cpu::scale_of(s);
      task.softcap = static_cast<float>(s.softcap);
      if (t.sink_logits) task.sink_logit = t.sink_logits->data() + h;
      task.chunks = chunks.chunks.data();
      task.chunk_count = static_cast<int64_t>(chunks.chunks.size());
      task.live = has_key.data() + q;
      task.scratch = scratch.data();
      task.pairs = &count.pairs;
      variant.run(task);
      if (!scratch.intact()) return "the kernel wrote behind its scratch";
    }
  }
  return {};
}

std::optional<std::string> fault(const KernelCase& c, AttentionArrays& arrays,
                                 int64_t rows) {
  const Wanted want = wanted(arrays);
  return each_variant(
      forward_variants(), c.attention.dtype,
      [&](const ForwardVariant& variant) -> std::optional<std::string> {
        arrays.clear_outputs();
        Count count;
        if (auto f = run(c, arrays, variant, rows, count)) return f;
        if (count.pairs < c.attention.shape.heads * c.pairs() ||
            count.pairs > count.most) {
          return "the count of pairs is wrong: " + std::to_string(count.pairs);
        }
        if (auto f = forward_fault(want, arrays.forward(c.attention.lse))) {
          return f;
        }
        return arrays.spilled();
      });
}

TEST(ForwardKernel, EverySizeAroundTheLanes) {
  for (int64_t n = 1; n <= 70; ++n) {
    testing::KernelSizes sizes;
    sizes.q_len = n;
    sizes.kv_len = n * 37 % 150 + 1;
    sizes.head_dim = n % 32 * 8 + 8;
    sizes.v_head_dim = n * 5 % 32 * 8 + 8;
    const KernelCase c = kernel_case(sizes, static_cast<uint64_t>(n));
    AttentionArrays arrays(c.attention);
    EXPECT_EQ(fault(c, arrays, kForwardRows), std::nullopt)
        << n << ": " << describe(c.attention);
  }
}

TEST(ForwardKernel, RandomCallsAreWithinTheirBounds) {
  const auto first = static_cast<int64_t>(testing::first_seed(1));
  for (int64_t i = 0; i < testing::case_count(150); ++i) {
    std::mt19937_64 random(static_cast<uint64_t>(first + i));
    testing::KernelSizes sizes;
    sizes.q_len = edge_size(random, 300);
    sizes.kv_len = edge_size(random, 400);
    sizes.heads = 1 + i % 2;
    sizes.head_dim = 8 * edge_size(random, 17);
    sizes.v_head_dim = 8 * edge_size(random, 17);
    KernelCase c = kernel_case(sizes, static_cast<uint64_t>(first + i));
    c.attention.sinks = random() % 3 == 0;
    AttentionArrays arrays(c.attention);
    const int64_t rows =
        random() % 2 == 0 ? kForwardRows : edge_size(random, 65);
    EXPECT_EQ(fault(c, arrays, rows), std::nullopt)
        << "seed " << first + i << ", blocks of " << rows << ": "
        << describe(c.attention);
  }
}

// A non-finite value reaches only the queries that may see its key.
TEST(ForwardKernel, OddNumbersStayWithTheirQueries) {
  constexpr double kOdd[] = {std::numeric_limits<double>::quiet_NaN(),
                             std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity()};
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    std::mt19937_64 random(seed);
    testing::KernelSizes sizes;
    sizes.q_len = edge_size(random, 70);
    sizes.kv_len = edge_size(random, 140);
    sizes.head_dim = sizes.v_head_dim = 24;
    KernelCase c = kernel_case(sizes, seed);
    c.attention.shape.scale.reset();
    c.attention.q_size = 1;  // no probability is 0
    AttentionArrays arrays(c.attention);
    for (int i = 0; i < 3; ++i) {
      const auto k =
          static_cast<int64_t>(random() % static_cast<uint64_t>(c.kv_len()));
      if (!c.is_live(k, 0, c.q_len())) continue;
      arrays.set(i == 2 ? 'k' : 'v', 0, 0, k,
                 static_cast<int64_t>(random() % 24),
                 i == 2 ? kOdd[0] : kOdd[random() % 3]);
    }
    EXPECT_EQ(fault(c, arrays, kForwardRows), std::nullopt)
        << "seed " << seed << ": " << describe(c.attention);
  }
}

// The callback returns true after a few chunks: the others are not run.
TEST(ForwardKernel, StopsBetweenChunks) {
  constexpr int64_t kRows = 64, kKeys = 64, kDim = 32;
  std::vector<float> numbers(static_cast<size_t>(5 * kKeys * kDim), 0.5F);
  std::vector<float> out(static_cast<size_t>(kRows * kDim));
  std::vector<uint8_t> live(static_cast<size_t>(kRows), 1);
  std::vector<KeyChunk> chunks;
  for (int64_t i = 0; i < 5; ++i) chunks.push_back({i * kKeys, kKeys, 0});
  const auto at_third = [](const void* asked) {
    return ++*static_cast<int*>(const_cast<void*>(asked)) > 2;
  };
  const auto run =
      [&](const ForwardVariant& variant) -> std::optional<std::string> {
    Floats scratch(forward_scratch(kDim, kDim));
    int asked = 0;
    int64_t pairs = 0;
    ForwardTask task;
    task.rows = kRows;
    task.head_dim = task.v_head_dim = kDim;
    task.q = task.k = task.v = numbers.data();
    task.out = out.data();
    task.q_stride = task.k_stride = task.v_stride = task.out_stride = kDim;
    task.chunks = chunks.data();
    task.chunk_count = static_cast<int64_t>(chunks.size());
    task.live = live.data();
    task.scratch = scratch.data();
    task.pairs = &pairs;
    task.stopped = at_third;
    task.stop = &asked;
    variant.run(task);
    if (asked == 3 && pairs == 2 * kRows * kKeys) return {};
    return std::to_string(asked) + " questions, " + std::to_string(pairs) +
           " pairs";
  };
  EXPECT_EQ(each_variant(forward_variants(), Dtype::f32, run), std::nullopt);
}

}  // namespace
}  // namespace tessera::kernels
