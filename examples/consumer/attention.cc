// examples/consumer/attention.cc: attention over packed documents with a causal
// window, forward and backward, in one call. train.cc prepares a batch once and
// runs it many times.
#include <tessera/tessera.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace {

int fail(const tessera::Error& error) {
  std::fprintf(stderr, "%s\n", error.message.c_str());
  return 1;
}

}  // namespace

int main() {
  constexpr int64_t kTokens = 1024, kHeads = 8, kKvHeads = 2, kDim = 64;
  auto mask = tessera::parse_mask("causal & window(255, 0) & documents");
  if (!mask) return fail(mask.error());
  tessera::Request request;
  request.masks = {*mask};
  request.q_len = request.kv_len = kTokens;
  request.tile = {128, 128};
  std::vector<int32_t> ids(kTokens);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = i < 700 ? 0 : 1;
  tessera::Facts facts;
  facts.doc_ids = ids;
  auto batch = tessera::BorrowedBatch::make(request, facts);
  if (!batch) return fail(batch.error());

  const size_t wide = kHeads * kTokens * kDim,
               narrow = kKvHeads * kTokens * kDim;
  std::vector<float> q(wide), k(narrow), v(narrow), out(wide), dout(wide, 1.0f);
  std::vector<float> dq(wide), dk(narrow), dv(narrow), lse(kHeads * kTokens);
  for (size_t i = 0; i < wide; ++i) q[i] = std::sin(static_cast<float>(i));
  for (size_t i = 0; i < narrow; ++i) k[i] = std::cos(static_cast<float>(i));
  for (size_t i = 0; i < narrow; ++i) v[i] = static_cast<float>(i % 7);

  const auto input = [](const std::vector<float>& x, int64_t heads) {
    return tessera::TensorView::bhsd(x.data(), tessera::Dtype::f32, 1, heads,
                                     kTokens, kDim);
  };
  const auto output = [](std::vector<float>& x, int64_t heads) {
    return tessera::MutableTensorView::bhsd(x.data(), tessera::Dtype::f32, 1,
                                            heads, kTokens, kDim);
  };
  tessera::AttentionShape shape;
  shape.heads = kHeads;
  shape.kv_heads = kKvHeads;
  shape.head_dim = shape.v_head_dim = kDim;
  tessera::ForwardTensors forward;
  forward.q = input(q, kHeads);
  forward.k = input(k, kKvHeads);
  forward.v = input(v, kKvHeads);
  forward.out = output(out, kHeads);
  forward.lse = lse;
  tessera::Gradients gradients;
  gradients.dout = input(dout, kHeads);
  gradients.dq = output(dq, kHeads);
  gradients.dk = output(dk, kKvHeads);
  gradients.dv = output(dv, kKvHeads);
  auto ran = tessera::run_attention({*batch, shape, forward, gradients});
  if (!ran) return fail(ran.error());

  // The probabilities of a query sum to 1. With dout = 1 everywhere, the sum of
  // dv is therefore the number of elements of out.
  double sum = 0;
  for (const float x : dv) sum += double{x};
  std::printf("%s: %lld tiles run and %lld skipped, sum of dv %.1f\n",
              std::string(to_string(ran->executed)).c_str(),
              static_cast<long long>(ran->counters.tiles_run),
              static_cast<long long>(ran->counters.tiles_skipped), sum);
  return std::abs(sum - static_cast<double>(wide)) < 1 ? 0 : 1;
}
