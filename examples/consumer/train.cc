// examples/consumer/train.cc: three layers of attention over packed documents,
// forward and backward, for several batches. Each batch is prepared once; a
// layer then costs its kernels only. `train reference` runs on lane reference;
// without a lane's name the library's rules choose.
#include <tessera/tessera.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace {

using namespace tessera;

constexpr int64_t kTokens = 512, kHeads = 4, kKvHeads = 2, kDim = 32;
constexpr int kBatches = 3;

int fail(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  return 1;
}

// One layer: its arrays, views of them, and the result of its forward pass.
struct Layer {
  std::vector<float> q, k, v, out, lse, dout, dq, dk, dv;
  ForwardTensors tensors;
  Gradients gradients;
  Saved saved;

  Layer() {
    for (auto* a : {&q, &out, &dout, &dq}) a->resize(kHeads * kTokens * kDim);
    for (auto* a : {&k, &v, &dk, &dv}) a->resize(kKvHeads * kTokens * kDim);
    lse.resize(kHeads * kTokens);
    dout.assign(dout.size(), 1.0F);
    for (size_t i = 0; i < q.size(); ++i) q[i] = std::sin(float(i));
    for (size_t i = 0; i < k.size(); ++i) k[i] = std::cos(float(i));
    for (size_t i = 0; i < v.size(); ++i) v[i] = float(i % 7);
    tensors = {view(q), view(k), view(v), {}, output(out), lse};
    gradients = {view(dout), {}, output(dq), output(dk), output(dv), {}};
  }
  Layer(const Layer&) = delete;  // the views point into the arrays

  static MutableTensorView output(std::vector<float>& a) {
    const int64_t heads = int64_t(a.size()) / (kTokens * kDim);
    return MutableTensorView::bhsd(a.data(), Dtype::f32, 1, heads, kTokens,
                                   kDim);
  }
  static TensorView view(std::vector<float>& a) { return as_input(output(a)); }
};

// The document lengths differ in every batch.
OwnedFacts facts_of(int batch) {
  OwnedFacts facts;
  facts.doc_ids.emplace();
  for (int32_t i = 0; i < kTokens; ++i) {
    facts.doc_ids->push_back(i / (100 + 80 * batch));
  }
  return facts;
}

// The relative error bound of dv in float32: the roundings of a probability and
// of its sum over queries, counted as in src/lanes/reference/bound.cc. No |q|
// or |k| is above 1, so no score is above sqrt(kDim).
double dv_error() {
  const double keys = 256, queries = keys * kHeads / kKvHeads;
  const double score = std::sqrt(double(kDim));
  const double lse = score + std::log(keys);
  const double probability =
      12 + std::sqrt(keys) + 3 * (kDim + 4) * score + 2 * lse;
  return 0x1p-24 * (probability + 8 + std::sqrt(queries) + 1);
}

// The probabilities of a query sum to 1. With dout = 1 everywhere, the sum of
// dv is therefore the number of elements of the output.
bool is_right(const Layer& layer) {
  double sum = 0;
  for (const float x : layer.dv) sum += double{x};
  const auto due = static_cast<double>(layer.out.size());
  std::printf("dv sums to %.1f, as it must to %.1f\n", sum, due);
  return std::abs(sum - due) < dv_error() * due;
}

}  // namespace

int main(int argc, char** argv) {
  SessionOptions options;
  if (argc > 1) {
    auto lane = parse_lane(argv[1]);
    if (!lane) return fail(lane.error().message);
    options.lane = *lane;
  }
  std::array<Layer, 3> layers;
  const AttentionShape shape = {kHeads, kKvHeads, kDim, kDim, {}, 0};
  // README begins
  Request request;
  request.masks = {*parse_mask("causal & window(255, 0) & documents")};
  request.q_len = request.kv_len = kTokens;
  auto batch = OwnedBatch::make(request, facts_of(0));  // binds and plans
  if (!batch) return fail(batch.error().message);  // "[facts] rule, found ..."
  auto session = Session::open(options);           // once a program
  if (!session) return fail(session.error().message);
  auto ready = session->prepare(*batch, {shape, Dtype::f32, false, true});
  if (!ready) return fail(ready.error().message);
  for (int step = 0; step < kBatches; ++step) {
    for (Layer& l : layers) {
      auto saved = ready->forward(l.tensors);
      if (!saved) return fail(saved.error().message);
      l.saved = *saved;  // where the arrays are, for the backward pass
    }
    for (auto l = layers.rbegin(); l != layers.rend(); ++l) {
      auto done = ready->backward(l->saved, l->gradients);
      if (!done) return fail(done.error().message);
    }
    if (!batch->remake(facts_of(step + 1)) || !ready->next(*batch)) {
      return fail("the next batch is not like this one");
    }
  }
  // README ends
  for (const Layer& l : layers) {
    if (!is_right(l)) return fail("the gradients are wrong");
  }
  const Counters counters = ready->counters();
  std::printf("%lld passes forward and %lld backward on the %s lane\n",
              static_cast<long long>(counters.forwards),
              static_cast<long long>(counters.backwards),
              std::string(to_string(ready->lane())).c_str());
  return counters.forwards == 9 && counters.backwards == 9 ? 0 : 1;
}
