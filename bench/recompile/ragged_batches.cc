// bench/recompile/ragged_batches.cc: draws lengths, boundaries, counts and
// windows.
#include "bench/recompile/ragged_batches.h"

#include <random>

#include "base/integers.h"
#include "request/drawn_documents.h"
#include "tessera/mask.h"

namespace tessera::bench {

using request::lognormal_ids;

namespace {

// A random number from `least` to `most`. The C++ standard fixes the numbers of
// the engine, but not those of its distributions, so none is used.
int64_t draw(std::mt19937_64& random, int64_t least, int64_t most) {
  const auto range = static_cast<uint64_t>(most - least + 1);
  return least + static_cast<int64_t>(random() % range);
}

}  // namespace

Facts RaggedBatch::facts() const {
  Facts out;
  out.doc_ids = ids;
  out.valid_token_counts = counts;
  return out;
}

RaggedBatch ragged_batch(const RaggedSizes& sizes, uint64_t seed,
                         int64_t index) {
  std::mt19937_64 random(seed * 1'000'003 + static_cast<uint64_t>(index));
  RaggedBatch out;
  const int64_t length = draw(random, sizes.tokens * 7 / 16, sizes.tokens);
  // All windows lie between the same two powers of two, which is one bucket.
  out.window = draw(random, sizes.tokens / 4 + 1, sizes.tokens / 2 - 1);
  Request& r = out.request;
  r.masks = {*make_mask(causal() & window(out.window, 0) & documents())};
  r.batch = sizes.rows;
  r.q_len = r.kv_len = length;
  r.tile = {sizes.tile, sizes.tile};
  const int64_t most = ceil_div(sizes.tokens, sizes.tile);
  r.ceilings = {sizes.rows * most * most, most};
  for (int64_t row = 0; row < sizes.rows; ++row) {
    const auto ids =
        lognormal_ids(static_cast<double>(sizes.tokens) / 4, random(), length);
    out.ids.insert(out.ids.end(), ids.begin(), ids.end());
    out.counts.push_back(
        static_cast<int32_t>(draw(random, length * 3 / 4, length)));
  }
  return out;
}

}  // namespace tessera::bench
