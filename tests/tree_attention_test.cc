// tests/tree_attention_test.cc: attention over a tree of sequences gives each
// token the result that its sequence alone gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "lanes/cpu/cpu.h"
#include "lanes/reference/bound.h"
#include "lanes/reference/reference.h"
#include "lanes/reference/rows.h"
#include "tessera/batch.h"
#include "tessera/facts.h"

namespace tessera {
namespace {

constexpr int64_t kDim = 16;
constexpr int64_t kHeads = 2;

AttentionShape shape() {
  AttentionShape s;
  s.heads = s.kv_heads = kHeads;
  s.head_dim = s.v_head_dim = kDim;
  return s;
}

// q, k or v of the given tokens; a token has the same values in every place.
std::vector<double> rows_of(const std::vector<std::vector<float>>& of_node,
                            const std::vector<int32_t>& nodes) {
  std::vector<double> out;
  for (int64_t h = 0; h < kHeads; ++h) {
    for (const int32_t node : nodes) {
      const auto& all = of_node[static_cast<size_t>(node)];
      out.insert(out.end(), all.begin() + h * kDim,
                 all.begin() + (h + 1) * kDim);
    }
  }
  return out;
}

TensorView view(const std::vector<float>& rows, int64_t tokens) {
  return TensorView::bhsd(rows.data(), Dtype::f32, 1, kHeads, tokens, kDim);
}

TEST(TreeAttention, ASharedPrefixGivesWhatTheSequencesGive) {
  std::mt19937_64 random(5);
  // Four answers of different lengths to one prompt of 40, one of which goes
  // on in two ways.
  std::vector<std::vector<int32_t>> sequences;
  for (const int length : {61, 44, 80, 80, 53}) {
    std::vector<int32_t> s(static_cast<size_t>(length));
    for (size_t i = 0; i < s.size(); ++i) {
      s[i] = i < 40 ? static_cast<int32_t>(i)
                    : static_cast<int32_t>(random() % 1000) + 1000;
    }
    sequences.push_back(std::move(s));
  }
  std::copy_n(sequences[2].begin(), 57, sequences[3].begin());
  const std::vector<Ints> views(sequences.begin(), sequences.end());
  const auto tree = pack_tree(views);
  ASSERT_TRUE(tree.ok());
  EXPECT_EQ(tree->tokens_saved(), 4 * 40 + 17);

  const auto n = static_cast<size_t>(tree->size());
  std::vector<std::vector<float>> q(n), k(n), v(n);
  std::normal_distribution<float> normal;
  for (auto* of : {&q, &k, &v}) {
    for (auto& token : *of) {
      for (int64_t i = 0; i < kHeads * kDim; ++i)
        token.push_back(normal(random));
    }
  }

  Request request;
  request.masks = {*parse_mask("tree")};
  request.q_len = request.kv_len = tree->size();
  request.tile = {16, 32};
  OwnedFacts facts;
  facts.tree_enter = tree->enter;
  facts.tree_leave = tree->leave;
  std::vector<int32_t> every(n);
  for (size_t i = 0; i < n; ++i) every[i] = static_cast<int32_t>(i);
  const auto qs = rows_of(q, every), ks = rows_of(k, every),
             vs = rows_of(v, every);
  auto packed = reference::reference_forward(request, facts.view(), shape(),
                                             {qs, ks, vs, {}});
  ASSERT_TRUE(packed.ok()) << packed.error().message;

  const auto batch = OwnedBatch::make(request, facts);
  ASSERT_TRUE(batch.ok());
  const auto work = cpu::cpu_prepare(*batch);
  ASSERT_TRUE(work.ok());
  const std::vector<float> fq(qs.begin(), qs.end()), fk(ks.begin(), ks.end()),
      fv(vs.begin(), vs.end());
  std::vector<float> out(fv.size()), lse(static_cast<size_t>(kHeads) * n);
  const auto tokens = static_cast<int64_t>(n);
  ForwardTensors t;
  t.q = view(fq, tokens);
  t.k = view(fk, tokens);
  t.v = view(fv, tokens);
  t.out =
      MutableTensorView::bhsd(out.data(), Dtype::f32, 1, kHeads, tokens, kDim);
  t.lse = lse;
  const auto ran = cpu::cpu_forward(*work, shape(), t);
  ASSERT_TRUE(ran.ok()) << ran.error().message;

  for (int64_t s = 0; s < tree->sequences(); ++s) {
    const auto at = static_cast<size_t>(s);
    const std::vector<int32_t> path(
        tree->path.begin() + tree->path_start[at],
        tree->path.begin() + tree->path_start[at + 1]);
    const auto length = static_cast<int64_t>(path.size());
    Request alone;
    alone.masks = {*parse_mask("causal")};
    alone.q_len = alone.kv_len = length;
    const auto pq = rows_of(q, path), pk = rows_of(k, path),
               pv = rows_of(v, path);
    const auto want =
        reference::reference_forward(alone, {}, shape(), {pq, pk, pv, {}});
    ASSERT_TRUE(want.ok());
    const std::vector<float> q32(pq.begin(), pq.end()),
        k32(pk.begin(), pk.end()), v32(pv.begin(), pv.end());
    ForwardTensors own;
    own.q = view(q32, length);
    own.k = view(k32, length);
    own.v = view(v32, length);
    auto oracle = reference::RowOracle::bind(alone, {}, shape(), own);
    ASSERT_TRUE(oracle.ok()) << oracle.error().message;
    for (size_t h = 0; h < size_t{kHeads}; ++h) {
      for (size_t i = 0; i < path.size(); ++i) {
        const size_t there = h * n + static_cast<size_t>(path[i]);
        const size_t here = h * path.size() + i;
        reference::QueryRow row;
        oracle->forward(0, static_cast<int64_t>(h), static_cast<int64_t>(i),
                        row);
        const auto is_near = [&](const reference::Expected& e, float got) {
          return reference::compare(e, got, oracle->rounding()).ratio <= 1;
        };
        // The oracle has the same sums in the same order, so results are equal.
        EXPECT_EQ(packed->lse[there], want->lse[here]);
        EXPECT_TRUE(is_near(row.lse, lse[there]));
        for (size_t d = 0; d < size_t{kDim}; ++d) {
          EXPECT_EQ(packed->out[there * kDim + d], want->out[here * kDim + d]);
          EXPECT_TRUE(is_near({row.out.value[d], row.out.error[d]},
                              out[there * kDim + d]));
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera
