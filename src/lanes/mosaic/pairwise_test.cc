// lanes/mosaic/pairwise_test.cc: libtpu compiles kernels that cover every legal
// pair of term values, on one device and on a mesh.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "pjrt/compile_for.h"
#include "tessera/batch.h"
#include "tessera/mosaic.h"
#include "tessera/shard.h"
#include "tests/mosaic_compiler.h"
#include "tests/plugins.h"
#include "tests/random_case.h"

namespace tessera::mosaic {
namespace {

// For each term the index of its value; -1 where it is open.
using Choice = std::vector<int>;

struct Terms {
  std::vector<int> sizes;  // number of values of each term
  // Whether the open terms can be filled so that such a kernel exists.
  bool (*can_be)(const Choice&);
};

using Pair = std::tuple<size_t, int, size_t, int>;  // terms in rising order

std::set<Pair> legal_pairs(const Terms& terms) {
  std::set<Pair> out;
  for (size_t i = 0; i < terms.sizes.size(); ++i) {
    for (size_t j = i + 1; j < terms.sizes.size(); ++j) {
      for (int a = 0; a < terms.sizes[i]; ++a) {
        for (int b = 0; b < terms.sizes[j]; ++b) {
          Choice c(terms.sizes.size(), -1);
          c[i] = a;
          c[j] = b;
          if (terms.can_be(c)) out.insert({i, a, j, b});
        }
      }
    }
  }
  return out;
}

// The pairs of a term's value with the values chosen so far.
std::vector<Pair> pairs_of(const Choice& c, size_t term) {
  std::vector<Pair> out;
  for (size_t i = 0; i < c.size(); ++i) {
    if (i == term || c[i] < 0) continue;
    const size_t first = std::min(i, term), second = std::max(i, term);
    out.push_back({first, c[first], second, c[second]});
  }
  return out;
}

// The value that leaves the fewest pairs open; `turn` rotates among equal ones.
int best_value(const Terms& terms, const std::set<Pair>& open, Choice c,
               size_t term, size_t turn) {
  int best = -1;
  int64_t most = -1;
  const auto size = static_cast<size_t>(terms.sizes[term]);
  for (size_t i = 0; i < size; ++i) {
    c[term] = static_cast<int>((i + turn) % size);
    if (!terms.can_be(c)) continue;
    int64_t met = 0;
    for (const Pair& p : pairs_of(c, term)) met += open.contains(p) ? 1 : 0;
    if (met > most) {
      best = c[term];
      most = met;
    }
  }
  return best;
}

// Greedy cover: each choice begins with a pair that is still open.
std::vector<Choice> cover(const Terms& terms) {
  std::set<Pair> open = legal_pairs(terms);
  std::vector<Choice> out;
  while (!open.empty()) {
    Choice c(terms.sizes.size(), -1);
    const auto [i, a, j, b] = *open.begin();
    c[i] = a;
    c[j] = b;
    for (size_t k = 0; k < c.size(); ++k) {
      if (c[k] < 0) c[k] = best_value(terms, open, c, k, out.size());
    }
    for (size_t k = 0; k < c.size(); ++k) {
      for (const Pair& p : pairs_of(c, k)) open.erase(p);
    }
    out.push_back(std::move(c));
  }
  return out;
}

// A commit takes half the share that other lists get, because there are many.
bool takes_class(size_t number) {
  const size_t stride = testing::case_stride();
  if (stride == 1) return true;
  return number % (2 * stride) == testing::case_turn() % (2 * stride);
}

// Whether the terms agree in direction and type.
bool agree(int direction, int dlse, int chunk, int row_sum, int dtype) {
  const bool backward = direction == 1 || dlse == 1 || chunk == 1;
  const bool forward = direction == 0 || row_sum == 1;
  return !(backward && forward) && !(row_sum == 1 && dtype == 1);
}

// Masks of ids with an upper bound, with both bounds, with none; of bitmaps, of
// picks, of a tree.
constexpr const char* kMasks[] = {
    "causal & documents",  "window(100, 7) & segments", "documents",
    "documents | sink(4)", "causal & blocks(64)",       "tree & prefix"};
constexpr std::pair<int64_t, int64_t> kHeads[] = {{4, 4}, {4, 2}, {1, 1}};
constexpr std::pair<int64_t, int64_t> kDims[] = {
    {64, 64},   {64, 128},  {128, 64}, {128, 128},
    {192, 128}, {192, 192}, {256, 256}};

namespace term {
enum Kernel : size_t {
  mask,
  direction,
  heads,
  dlse,
  softcap,
  dims,
  sinks,
  dtype,
  numbers,
  row_sum,
  chunk,
  page,
  kernel_terms
};
}  // namespace term

Terms kernel_terms() {
  Terms out;
  out.sizes.assign(term::kernel_terms, 2);
  out.sizes[term::mask] = static_cast<int>(std::size(kMasks));
  out.sizes[term::heads] = static_cast<int>(std::size(kHeads));
  out.sizes[term::dims] = static_cast<int>(std::size(kDims));
  out.can_be = [](const Choice& c) {
    return agree(c[term::direction], c[term::dlse], c[term::chunk],
                 c[term::row_sum], c[term::dtype]);
  };
  return out;
}

// A small class, three tiles of queries, which compiles in about a second.
testing::KernelClass class_of(const Choice& c, size_t number) {
  const auto value = [&](term::Kernel t) { return static_cast<size_t>(c[t]); };
  const auto is = [&](term::Kernel t) { return c[t] == 1; };
  const auto odd = static_cast<int64_t>(number % 2);
  const auto [heads, kv_heads] = kHeads[value(term::heads)];
  testing::KernelClass out{kMasks[value(term::mask)],
                           700,
                           {256, odd == 1 ? 128 : 256},
                           {1 + odd, 1 + static_cast<int64_t>(number % 3)},
                           heads,
                           kv_heads};
  if (is(term::row_sum)) out.options.row_sum = RowSum::rounded;
  if (is(term::numbers)) out.options.numbers = Numbers::any;
  if (is(term::chunk)) out.options.query_chunk = out.tile.q;
  if (is(term::page)) out.options.page_steps = 64;
  out.backward = is(term::direction);
  out.dlse = is(term::dlse);
  out.softcap = is(term::softcap) ? 30 : 0;
  std::tie(out.dim, out.v_dim) = kDims[value(term::dims)];
  out.sinks = is(term::sinks);
  if (is(term::dtype)) out.dtype = Dtype::f32;
  return out;
}

// On a mesh all masks have bitmaps. In the last case each half of the heads has
// its own mask.
const std::vector<std::vector<std::string>>& mesh_masks() {
  static const std::vector<std::vector<std::string>> out = {
      {"causal"}, {"causal & window(300, 0)"}, {"causal", "full"}};
  return out;
}

namespace term {
enum Mesh : size_t {
  mesh_direction,
  mesh_numbers,
  mesh_dtype,
  mesh_sinks,
  mesh_dlse,
  mesh_mask,
  mesh_dim,
  mesh_page,
  mesh_row_sum,
  mesh_terms
};
}  // namespace term

Terms mesh_terms() {
  Terms out;
  out.sizes.assign(term::mesh_terms, 2);
  out.sizes[term::mesh_mask] = static_cast<int>(mesh_masks().size());
  out.can_be = [](const Choice& c) {
    return agree(c[term::mesh_direction], c[term::mesh_dlse], 0,
                 c[term::mesh_row_sum], c[term::mesh_dtype]);
  };
  return out;
}

// The choice's program for four devices.
Result<MosaicKernel> mesh_program(const Choice& c, const std::string& target) {
  const auto is = [&](term::Mesh t) { return c[t] == 1; };
  Request request;
  for (const std::string& mask :
       mesh_masks()[static_cast<size_t>(c[term::mesh_mask])]) {
    request.masks.push_back(*parse_mask(mask));
  }
  request.q_len = request.kv_len = 2048;
  request.tile = {256, 256};
  auto batch = OwnedBatch::make(request, {});
  if (!batch) return batch.error();
  AttentionCall call;
  const int64_t dim = is(term::mesh_dim) ? 128 : 64;
  call.shape = {4, 2, dim, dim, {}, 0};
  call.dtype = is(term::mesh_dtype) ? Dtype::f32 : Dtype::bf16;
  call.sink_logits = is(term::mesh_sinks);
  call.backward = is(term::mesh_direction);
  call.dlse = is(term::mesh_dlse);
  ShardOptions options;
  options.shape = call.shape;
  options.dtype = call.dtype;
  auto shards = make_shards(*batch, *parse_mesh("seq=4"), options);
  if (!shards) return shards.error();
  MosaicOptions kernel = {1, 1};
  if (is(term::mesh_numbers)) kernel.numbers = Numbers::any;
  if (is(term::mesh_row_sum)) kernel.row_sum = RowSum::rounded;
  if (is(term::mesh_page)) kernel.page_steps = 64;
  return make_mosaic_shards(*batch, *shards, call, target, kernel);
}

// Each class is legal, and every legal pair is covered.
TEST(MosaicPairs, TheCoversCover) {
  struct Due {
    Terms terms;
    size_t pairs, classes;  // at least so many pairs, at most so many classes
  };
  for (const Due& due :
       {Due{kernel_terms(), 500, 50}, Due{mesh_terms(), 150, 14}}) {
    const std::vector<Choice> all = cover(due.terms);
    EXPECT_LE(all.size(), due.classes);
    std::set<Pair> met;
    for (const Choice& c : all) {
      ASSERT_EQ(c.size(), due.terms.sizes.size());
      for (size_t i = 0; i < c.size(); ++i) {
        EXPECT_TRUE(c[i] >= 0 && c[i] < due.terms.sizes[i]);
        for (const Pair& p : pairs_of(c, i)) met.insert(p);
      }
      EXPECT_TRUE(due.terms.can_be(c));
    }
    EXPECT_GE(met.size(), due.pairs);
    EXPECT_EQ(met, legal_pairs(due.terms));
  }
  // A pair that no kernel can have is not legal.
  const std::set<Pair> legal = legal_pairs(kernel_terms());
  EXPECT_FALSE(legal.contains({term::dlse, 1, term::row_sum, 1}));
  EXPECT_TRUE(legal.contains({term::numbers, 1, term::row_sum, 1}));
}

class MosaicPairwise : public testing::MosaicCompiler {};

TEST_F(MosaicPairwise, EveryPairOfTermsCompiles) {
  const std::vector<Choice> all = cover(kernel_terms());
  for (size_t n = 0; n < all.size(); ++n) {
    if (takes_class(n)) compile_class(class_of(all[n], n));
  }
}

TEST_F(MosaicPairwise, EveryPairOfAMeshsTermsCompiles) {
  const std::string target = "v6e:2x2";
  auto plugin = testing::real_plugin("libtpu");
  ASSERT_TRUE(plugin.ok()) << plugin.error().message;
  const std::vector<Choice> all = cover(mesh_terms());
  for (size_t n = 0; n < all.size(); ++n) {
    if (!takes_class(n)) continue;
    SCOPED_TRACE(::testing::PrintToString(all[n]));
    const auto kernel = mesh_program(all[n], target);
    ASSERT_TRUE(kernel.ok()) << kernel.error().message;
    const auto made = pjrt::compile_for({(*plugin)->path(), {}}, target,
                                        kernel->program_text);
    EXPECT_TRUE(made.ok()) << made.error().message;
  }
}

}  // namespace
}  // namespace tessera::mosaic
