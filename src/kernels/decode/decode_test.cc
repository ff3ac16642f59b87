// kernels/decode/decode_test.cc: the decode kernels alone, on every ISA of this
// machine, against fp64 within the bounds of lanes/reference/bound.cc.
#include "kernels/decode/decode.h"

#include <gtest/gtest.h>

#include <algorithm>
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
using testing::legal_runs;
using testing::Wanted;
using testing::wanted;

// The runs of the keys in [begin, end) that all queries attend to. other_runs()
// gives those that query q attends to and some other query does not.
std::vector<KeyRun> shared_runs(const KernelCase& c, int64_t begin,
                                int64_t end) {
  std::vector<KeyRun> runs;
  for (int64_t k = begin; k < end; ++k) {
    bool all = true;
    for (int64_t q = 0; q < c.q_len(); ++q) all &= c.is_legal(q, k);
    if (!all) continue;
    if (runs.empty() || runs.back().end != k) runs.push_back({k, k});
    ++runs.back().end;
  }
  return runs;
}
std::vector<KeyRun> other_runs(const KernelCase& c, int64_t q, int64_t begin,
                               int64_t end) {
  const std::vector<KeyRun> shared = shared_runs(c, begin, end);
  const auto is_shared = [&](int64_t k) {
    return std::any_of(shared.begin(), shared.end(), [k](const KeyRun& run) {
      return run.begin <= k && k < run.end;
    });
  };
  std::vector<KeyRun> runs;
  for (const auto& legal : legal_runs(c, q, begin, end)) {
    for (int64_t k = legal.begin; k < legal.end; ++k) {
      if (is_shared(k)) continue;
      if (runs.empty() || runs.back().end != k) runs.push_back({k, k});
      ++runs.back().end;
    }
  }
  return runs;
}

// Runs the rows of a case, with the heads of a query side by side, over the
// parts that end at `ends`.
class Call {
 public:
  Call(const KernelCase& c, AttentionArrays& arrays,
       const DecodeVariant& variant, std::vector<int64_t> ends)
      : c_(c),
        t_(arrays.forward(c.attention.lse)),
        s_(c.attention.shape),
        variant_(variant),
        ends_(std::move(ends)),
        rows_(s_.heads * c.q_len()),
        pitch_(decode_pitch(s_.v_head_dim)),
        out_(static_cast<int64_t>(ends_.size()) * rows_ * pitch_),
        sums_(ends_.size() * static_cast<size_t>(rows_)) {
    std::fill_n(out_.data(),
                static_cast<int64_t>(ends_.size()) * rows_ * pitch_, 0.0F);
    for (int64_t q = 0; q < c.q_len(); ++q) {
      for (int64_t h = 0; h < s_.heads; ++h) {
        q_.push_back(cpu::element(t_.q, 0, h, q));
      }
    }
  }

  std::optional<std::string> run() {
    int64_t begin = 0;
    for (size_t part = 0; part < ends_.size(); ++part) {
      if (auto f = add(part, 0, rows_, shared_runs(c_, begin, ends_[part]))) {
        return f;
      }
      for (int64_t q = 0; q < c_.q_len(); ++q) {
        if (auto f = add(part, q * s_.heads, (q + 1) * s_.heads,
                         other_runs(c_, q, begin, ends_[part]))) {
          return f;
        }
      }
      begin = ends_[part];
    }
    for (int64_t q = 0; q < c_.q_len(); ++q) {
      for (int64_t h = 0; h < s_.heads; ++h) merge(q, h);
    }
    if (!out_.intact()) return "the kernel wrote behind its sums";
    // Each legal pair must be computed once, and no other pair.
    if (pairs_ != s_.heads * c_.pairs()) {
      return "the count of pairs is wrong: " + std::to_string(pairs_);
    }
    return {};
  }

 private:
  size_t first_row(size_t part) const {
    return part * static_cast<size_t>(rows_);
  }

  std::optional<std::string> add(size_t part, int64_t begin, int64_t end,
                                 const std::vector<KeyRun>& runs) {
    if (runs.empty()) return {};
    Floats scratch(decode_scratch(s_.head_dim, s_.v_head_dim));
    const size_t first = first_row(part) + static_cast<size_t>(begin);
    DecodeTask task;
    task.dtype = t_.q.dtype;
    task.rows = end - begin;
    task.head_dim = s_.head_dim;
    task.v_head_dim = s_.v_head_dim;
    task.q = q_.data() + begin;
    task.k = cpu::element(t_.k, 0, 0, 0);
    task.v = cpu::element(t_.v, 0, 0, 0);
    task.k_stride = t_.k.token_stride;
    task.v_stride = t_.v.token_stride;
    task.scale = cpu::scale_of(s_);
    task.softcap = static_cast<float>(s_.softcap);
    task.runs = runs.data();
    task.run_count = static_cast<int64_t>(runs.size());
    task.sums = sums_.data() + first;
    task.out = out_.data() + static_cast<int64_t>(first) * pitch_;
    task.scratch = scratch.data();
    task.pairs = &pairs_;
    variant_.run(task);
    if (!scratch.intact()) return "the kernel wrote behind its scratch";
    return {};
  }

  void merge(int64_t q, int64_t h) {
    const int64_t row = q * s_.heads + h;
    DecodeMerge merge;
    merge.dtype = t_.out.dtype;
    merge.parts = static_cast<int64_t>(ends_.size());
    merge.v_head_dim = s_.v_head_dim;
    merge.sums = sums_.data() + row;
    merge.sums_stride = rows_;
    merge.out = out_.data() + row * pitch_;
    merge.out_stride = rows_ * pitch_;
    merge.live = c_.has_key(q);
    if (t_.sink_logits) merge.sink_logit = t_.sink_logits->data() + h;
    merge.to = cpu::element(t_.out, 0, h, q);
    if (!t_.lse.empty()) merge.lse = t_.lse.data() + h * c_.q_len() + q;
    variant_.merge(merge);
  }

  const KernelCase& c_;
  const ForwardTensors t_;
  const AttentionShape& s_;
  const DecodeVariant& variant_;
  std::vector<int64_t> ends_;
  int64_t rows_, pitch_;
  Floats out_;
  std::vector<DecodeSums> sums_;
  std::vector<const void*> q_;
  int64_t pairs_ = 0;
};

std::optional<std::string> fault(const KernelCase& c, AttentionArrays& arrays,
                                 const std::vector<int64_t>& ends) {
  const Wanted want = wanted(arrays);
  return each_variant(
      decode_variants(), c.attention.dtype,
      [&](const DecodeVariant& variant) -> std::optional<std::string> {
        arrays.clear_outputs();
        if (auto f = Call(c, arrays, variant, ends).run()) return f;
        if (auto f = forward_fault(want, arrays.forward(c.attention.lse))) {
          return f;
        }
        return arrays.spilled();
      });
}

TEST(DecodeKernel, EverySizeAroundTheLanes) {
  for (int64_t n = 1; n <= 140; ++n) {
    testing::KernelSizes sizes;
    sizes.heads = n % kDecodeRows + 1;
    sizes.kv_len = n;
    sizes.head_dim = n % 32 * 8 + 8;
    sizes.v_head_dim = n * 5 % 32 * 8 + 8;
    const KernelCase c = kernel_case(sizes, static_cast<uint64_t>(n));
    AttentionArrays arrays(c.attention);
    EXPECT_EQ(fault(c, arrays, {c.kv_len()}), std::nullopt)
        << n << ": " << describe(c.attention);
  }
}

TEST(DecodeKernel, RandomCallsAreWithinTheirBounds) {
  const auto first = static_cast<int64_t>(testing::first_seed(1));
  for (int64_t i = 0; i < testing::case_count(200); ++i) {
    std::mt19937_64 random(static_cast<uint64_t>(first + i));
    testing::KernelSizes sizes;
    sizes.q_len = static_cast<int64_t>(random() % 4) + 1;
    sizes.heads = static_cast<int64_t>(random() % (16 / sizes.q_len)) + 1;
    sizes.kv_len = edge_size(random, 400);
    sizes.head_dim = 8 * edge_size(random, 32);
    sizes.v_head_dim = 8 * edge_size(random, 32);
    KernelCase c = kernel_case(sizes, static_cast<uint64_t>(first + i));
    c.attention.sinks = random() % 3 == 0;
    AttentionArrays arrays(c.attention);
    // Parts of any size, including empty ones.
    std::vector<int64_t> ends = {c.kv_len()};
    while (random() % 3 != 0) {
      ends.push_back(static_cast<int64_t>(
          random() % static_cast<uint64_t>(c.kv_len() + 1)));
    }
    std::sort(ends.begin(), ends.end());
    EXPECT_EQ(fault(c, arrays, ends), std::nullopt)
        << "seed " << first + i << ", " << ends.size()
        << " parts: " << describe(c.attention);
  }
}

// A non-finite value reaches only the queries that may see its key.
TEST(DecodeKernel, OddNumbersStayWithTheirQueries) {
  constexpr double kOdd[] = {std::numeric_limits<double>::quiet_NaN(),
                             std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity()};
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    std::mt19937_64 random(seed);
    testing::KernelSizes sizes;
    sizes.q_len = 3;
    sizes.kv_len = edge_size(random, 140);
    sizes.head_dim = sizes.v_head_dim = 24;
    KernelCase c = kernel_case(sizes, seed);
    c.attention.shape.scale.reset();
    c.attention.q_size = 1;  // no probability is 0
    AttentionArrays arrays(c.attention);
    const auto k =
        static_cast<int64_t>(random() % static_cast<uint64_t>(c.kv_len()));
    if (c.is_live(k, 0, c.q_len())) {
      arrays.set('v', 0, 0, k, static_cast<int64_t>(random() % 24),
                 kOdd[random() % 3]);
    }
    EXPECT_EQ(fault(c, arrays, {c.kv_len() / 2, c.kv_len()}), std::nullopt)
        << "seed " << seed << ": " << describe(c.attention);
  }
}

}  // namespace
}  // namespace tessera::kernels
