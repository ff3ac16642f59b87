// lanes/tensors_test.cc: an input that breaks each rule, every layout that must
// pass, and the overlap checks against sets of bytes.
#include "lanes/tensors.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace tessera::lanes {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr int64_t kFar = int64_t{1} << 61;

constexpr PlanSizes kPlan{.batch = 2, .q_len = 3, .kv_len = 5, .heads = 2};

AttentionShape shape_of_call() { return {4, 2, 16, 8, {}}; }

// A call that passes; each array in a buffer of its own.
struct Call {
  PlanSizes plan = kPlan;
  AttentionShape shape = shape_of_call();
  std::vector<float> q = std::vector<float>(2 * 4 * 3 * 16);
  std::vector<float> k = std::vector<float>(2 * 2 * 5 * 16);
  std::vector<float> v = std::vector<float>(2 * 2 * 5 * 8);
  std::vector<float> out = std::vector<float>(2 * 4 * 3 * 8);
  std::vector<float> dout = out, dq = q, dk = k, dv = v;
  std::vector<float> lse = std::vector<float>(2 * 4 * 3), dlse = lse;
  std::vector<float> sinks = std::vector<float>(4), dsinks = sinks;
  ForwardTensors f;
  Gradients g;

  Call() {
    f.q = view<TensorView>(q, 4, 3, 16);
    f.k = view<TensorView>(k, 2, 5, 16);
    f.v = view<TensorView>(v, 2, 5, 8);
    f.out = view<MutableTensorView>(out, 4, 3, 8);
    g.dout = view<TensorView>(dout, 4, 3, 8);
    g.dq = view<MutableTensorView>(dq, 4, 3, 16);
    g.dk = view<MutableTensorView>(dk, 2, 5, 16);
    g.dv = view<MutableTensorView>(dv, 2, 5, 8);
    f.sink_logits = sinks;
    f.lse = lse;
    g.dlse = dlse;
    g.dsink_logits = dsinks;
  }
  Call(const Call&) = delete;

  template <class View>
  static View view(std::vector<float>& data, int64_t heads, int64_t tokens,
                   int64_t dim) {
    return View::bhsd(data.data(), Dtype::f32, 2, heads, tokens, dim);
  }

  // The error message, or "".
  std::string forward() const {
    const auto r = check_forward("here", plan, shape, f);
    return r.ok() ? "" : r.error().message;
  }
  std::string backward() const {
    const auto r = check_backward("here", plan, shape, f, g);
    return r.ok() ? "" : r.error().message;
  }
};

struct Change {
  std::function<void(Call&)> make;
  std::string error;  // without "[here] "; empty: it passes
};

TEST(CheckTensors, TheCallsOfThisTestPass) {
  EXPECT_EQ(Call().forward(), "");
  EXPECT_EQ(Call().backward(), "");
}

TEST(CheckTensors, RulesOfTheShape) {
  const Change changes[] = {
      {[](Call& c) { c.shape.heads = 0; },
       "heads must be from 1 to 65536, found 0"},
      {[](Call& c) { c.shape.heads = int64_t{1} << 62; },
       "heads must be from 1 to 65536, found 4611686018427387904"},
      {[](Call& c) { c.shape.kv_heads = -1; },
       "kv_heads must be from 1 to 65536, found -1"},
      {[](Call& c) { c.plan.heads = 0; },
       "sizes must be 1 or more, found 0 for plan heads"},
      {[](Call& c) { c.plan.batch = 0; },
       "sizes must be 1 or more, found 0 for batch"},
      {[](Call& c) { c.plan.q_len = -3; },
       "sizes must be 1 or more, found -3 for q_len"},
      {[](Call& c) { c.plan.kv_len = 0; },
       "sizes must be 1 or more, found 0 for kv_len"},
      {[](Call& c) { c.shape.kv_heads = 3; },
       "kv_heads must divide heads, found 3 kv_heads for 4 heads"},
      {[](Call& c) { c.plan.heads = 3; },
       "plan heads must divide heads, found 3 plan heads for 4 heads"},
      {[](Call& c) { c.shape.head_dim = 0; },
       "head dims must be a multiple of 8 up to 256, found 0 for head_dim"},
      {[](Call& c) { c.shape.head_dim = 12; },
       "head dims must be a multiple of 8 up to 256, found 12 for head_dim"},
      {[](Call& c) { c.shape.head_dim = 264; },
       "head dims must be a multiple of 8 up to 256, found 264 for head_dim"},
      {[](Call& c) { c.shape.v_head_dim = -8; },
       "head dims must be a multiple of 8 up to 256, found -8 for v_head_dim"},
      {[](Call& c) { c.shape.v_head_dim = 257; },
       "head dims must be a multiple of 8 up to 256, found 257 for v_head_dim"},
      {[](Call& c) { c.shape.scale = kInf; },
       "numbers must be finite, found inf for scale"},
      {[](Call& c) { c.shape.scale = std::nan(""); },
       "numbers must be finite, found nan for scale"},
      {[](Call& c) { c.shape.scale = -0.5; }, ""},
      {[](Call& c) { c.shape.scale = 0; }, ""},
      {[](Call& c) { c.shape.softcap = 30; }, ""},
      {[](Call& c) { c.shape.softcap = -1; },
       "numbers must be finite and 0 or more, found -1 for softcap"},
      {[](Call& c) { c.shape.softcap = kInf; },
       "numbers must be finite and 0 or more, found inf for softcap"},
      {[](Call& c) { c.shape.softcap = std::nan(""); },
       "numbers must be finite and 0 or more, found nan for softcap"},
      {[](Call& c) { c.shape.softcap = 1e-29; }, ""},
      {[](Call& c) { c.shape.softcap = 1e-46; },
       "a softcap must be 0 or 1e-30 to 1e+30, found 1e-46"},
      {[](Call& c) { c.shape.softcap = 1e39; },
       "a softcap must be 0 or 1e-30 to 1e+30, found 1e+39"},
      {[](Call& c) { c.shape.scale = -1e29; }, ""},
      {[](Call& c) { c.shape.scale = 1e20, c.shape.softcap = 1e-20; },
       "scale / softcap must be at most 1e+30 in size, found 1e+20 for scale "
       "and 1e-20 for softcap"},
      {[](Call& c) { c.shape.scale = -1e39; },
       "a scale must be at most 1e+30 in size, found -1e+39"},
  };
  for (const Change& change : changes) {
    Call c;
    change.make(c);
    const std::string want =
        change.error.empty() ? "" : "[here] " + change.error;
    EXPECT_EQ(c.forward(), want);
    EXPECT_EQ(c.backward(), want);
  }
}

// Each rule of one tensor, for every tensor of both passes.
template <class View>
struct TensorChange {
  std::function<void(View&)> make;
  std::string error;  // {} is the tensor's name
};

std::string with_name(std::string text, const std::string& name) {
  for (size_t at; (at = text.find("{}")) != std::string::npos;) {
    text.replace(at, 2, name);
  }
  return text;
}

template <class View>
std::vector<TensorChange<View>> tensor_changes() {
  using Data = decltype(View::data);
  return {
      {[](View& t) { t.dtype = Dtype::f64; },
       "tensors must be F32, BF16 or F16, found F64 for {}"},
      {[](View& t) { t.dtype = Dtype::i32; },
       "tensors must be F32, BF16 or F16, found I32 for {}"},
      {[](View& t) { t.data = nullptr; },
       "data must be there, found a null pointer for {}"},
      {[](View& t) { t.data = reinterpret_cast<Data>(uintptr_t{0x1002}); },
       "data must be aligned to its 4 bytes an element, found 0x1002 for {}"},
      {[](View& t) { t.batch_stride = -1; },
       "strides must be 0 or more, found -1 for batch_stride of {}"},
      {[](View& t) { t.head_stride = -8; },
       "strides must be 0 or more, found -8 for head_stride of {}"},
      {[](View& t) { t.token_stride = -16; },
       "strides must be 0 or more, found -16 for token_stride of {}"},
      {[](View& t) { t.batch_stride = INT64_MAX; },
       "a tensor must end before byte 2^62, found 2 batch_stride of "
       "9223372036854775807 elements for {}"},
      {[](View& t) { t.batch_stride = kFar / 2; },
       "a tensor must end before byte 2^62, found 2 batch_stride of "
       "1152921504606846976 elements for {}"},
      {[](View& t) { t.data = reinterpret_cast<Data>(UINTPTR_MAX - 15); },
       "a tensor must end within the address space, found"},
  };
}

template <class View>
void expect_tensor_rules(const std::string& name, bool first,
                         const std::function<View&(Call&)>& tensor,
                         const std::function<std::string(Call&)>& check) {
  const auto expect = [&](const std::function<void(View&)>& make,
                          const std::string& error) {
    Call c;
    make(tensor(c));
    const std::string want = "[here] " + with_name(error, name);
    EXPECT_EQ(check(c).substr(0, want.size()), want);
  };
  for (const auto& change : tensor_changes<View>()) {
    expect(change.make, change.error);
  }
  for (auto member : {&View::batch, &View::heads, &View::tokens, &View::dim}) {
    for (const int64_t step : {-1, 1}) {
      expect([&](View& t) { t.*member += step; }, "{} must be [batch, ");
    }
  }
  Call c;
  const int64_t dim = tensor(c).dim;
  expect([&](View& t) { t.token_stride = dim - 1; },
         "token_stride must be at least the dim " + std::to_string(dim) +
             ", found " + std::to_string(dim - 1) + " for {}");
  expect([](View& t) { t.token_stride = 0; }, "token_stride must be at least");
  if (!first) {
    expect([](View& t) { t.dtype = Dtype::bf16; },
           "tensors must share the dtype of q, found BF16 for {} and F32 for "
           "q");
  }
}

TEST(CheckTensors, RulesOfEachTensor) {
  const std::function<std::string(Call&)> forward = [](Call& c) {
    return c.forward();
  };
  const std::function<std::string(Call&)> backward = [](Call& c) {
    return c.backward();
  };
  using In = TensorView;
  using Out = MutableTensorView;
  expect_tensor_rules<In>(
      "q", true, [](Call& c) -> In& { return c.f.q; }, forward);
  expect_tensor_rules<In>(
      "k", false, [](Call& c) -> In& { return c.f.k; }, forward);
  expect_tensor_rules<In>(
      "v", false, [](Call& c) -> In& { return c.f.v; }, forward);
  expect_tensor_rules<Out>(
      "out", false, [](Call& c) -> Out& { return c.f.out; }, forward);
  expect_tensor_rules<In>(
      "q", true, [](Call& c) -> In& { return c.f.q; }, backward);
  expect_tensor_rules<In>(
      "k", false, [](Call& c) -> In& { return c.f.k; }, backward);
  expect_tensor_rules<In>(
      "v", false, [](Call& c) -> In& { return c.f.v; }, backward);
  expect_tensor_rules<Out>(
      "out", false, [](Call& c) -> Out& { return c.f.out; }, backward);
  expect_tensor_rules<In>(
      "dout", false, [](Call& c) -> In& { return c.g.dout; }, backward);
  expect_tensor_rules<Out>(
      "dq", false, [](Call& c) -> Out& { return c.g.dq; }, backward);
  expect_tensor_rules<Out>(
      "dk", false, [](Call& c) -> Out& { return c.g.dk; }, backward);
  expect_tensor_rules<Out>(
      "dv", false, [](Call& c) -> Out& { return c.g.dv; }, backward);
}

TEST(CheckTensors, AnErrorShowsAllSizes) {
  Call c;
  c.f.k.tokens = 6;
  EXPECT_EQ(c.forward(),
            "[here] k must be [batch, kv_heads, kv_len, head_dim] = [2, 2, 5, "
            "16], found [2, 2, 6, 16]");
}

std::span<float> at(uintptr_t address, size_t size) {
  return {reinterpret_cast<float*>(address), size};
}

TEST(CheckTensors, RulesOfArraysOfFloatsForward) {
  const Change changes[] = {
      {[](Call& c) { c.f.lse = {}; }, ""},
      {[](Call& c) { c.f.sink_logits.reset(); }, ""},
      {[](Call& c) { c.f.lse = std::span(c.lse).first(23); },
       "lse must hold 24 values, found 23 for [batch, heads, q_len]"},
      {[](Call& c) { c.f.lse = at(0x1002, 24); },
       "data must be aligned to its 4 bytes an element, found 0x1002 for lse"},
      {[](Call& c) { c.f.lse = at(0, 24); },
       "data must be there, found a null pointer for lse"},
      {[](Call& c) { c.f.sink_logits = std::span(c.sinks).first(3); },
       "sink_logits must hold 4 values, found 3 for [heads]"},
      {[](Call& c) { c.f.sink_logits = std::span<float>(); },
       "sink_logits must hold 4 values, found 0 for [heads]"},
      {[](Call& c) { c.f.sink_logits = at(0x1001, 4); },
       "data must be aligned to its 4 bytes an element, found 0x1001 for "
       "sink_logits"},
  };
  for (const Change& change : changes) {
    Call c;
    change.make(c);
    EXPECT_EQ(c.forward(),
              change.error.empty() ? "" : "[here] " + change.error);
  }
}

TEST(CheckTensors, RulesOfArraysOfFloatsBackward) {
  const Change changes[] = {
      {[](Call& c) { c.g.dlse = {}; }, ""},
      {[](Call& c) { c.f.sink_logits.reset(), c.g.dsink_logits = {}; }, ""},
      {[](Call& c) { c.f.lse = {}; },
       "lse must hold 24 values, found 0 for [batch, heads, q_len]"},
      {[](Call& c) { c.g.dlse = std::span(c.dlse).first(1); },
       "dlse must hold 24 values, found 1 for [batch, heads, q_len]"},
      {[](Call& c) { c.f.lse = at(0x1002, 24); },
       "data must be aligned to its 4 bytes an element, found 0x1002 for lse"},
      {[](Call& c) { c.f.sink_logits = std::span(c.sinks).first(2); },
       "sink_logits must hold 4 values, found 2 for [heads]"},
      {[](Call& c) { c.f.sink_logits.reset(); },
       "dsink_logits must hold 0 values, found 4 for no sink logits"},
      {[](Call& c) { c.g.dsink_logits = {}; },
       "dsink_logits must hold 4 values, found 0 for [heads]"},
      {[](Call& c) { c.g.dsink_logits = at(0, 4); },
       "data must be there, found a null pointer for dsink_logits"},
  };
  for (const Change& change : changes) {
    Call c;
    change.make(c);
    EXPECT_EQ(c.backward(),
              change.error.empty() ? "" : "[here] " + change.error);
  }
}

TEST(CheckTensors, OutputsShareNothing) {
  const std::string rule =
      "[here] an output must share no byte with another array, found ";
  const auto found = [](const std::function<void(Call&)>& make, bool forward) {
    Call c;
    make(c);
    return forward ? c.forward() : c.backward();
  };
  EXPECT_EQ(found([](Call& c) { c.f.out.data = c.q.data(); }, true),
            rule + "q for out");
  EXPECT_EQ(found([](Call& c) { c.f.v.data = c.out.data() + 191; }, true),
            rule + "v for out");
  EXPECT_EQ(found([](Call& c) { c.f.lse = std::span(c.k).first(24); }, true),
            rule + "k for lse");
  EXPECT_EQ(found([](Call& c) { c.f.lse = std::span(c.out).last(24); }, true),
            rule + "out for lse");
  EXPECT_EQ(
      found([](Call& c) { c.f.sink_logits = std::span(c.out).first(4); }, true),
      rule + "sink_logits for out");
  EXPECT_EQ(found([](Call& c) { c.g.dq.data = c.q.data(); }, false),
            rule + "q for dq");
  EXPECT_EQ(found([](Call& c) { c.g.dk.data = c.dq.data(); }, false),
            rule + "dq for dk");
  EXPECT_EQ(found([](Call& c) { c.g.dsink_logits = c.sinks; }, false),
            rule + "sink_logits for dsink_logits");
  // Inputs may share all their bytes.
  EXPECT_EQ(found(
                [](Call& c) {
                  c.g.dlse = c.lse;
                  c.g.dout.data = c.out.data();
                },
                false),
            "");
  // Adjacent arrays touch but share no byte.
  EXPECT_EQ(found(
                [](Call& c) {
                  c.dq.resize(c.dq.size() + c.dk.size());
                  c.g.dq.data = c.dq.data();
                  c.g.dk.data = c.dq.data() + 2 * 4 * 3 * 16;
                },
                false),
            "");
}

TEST(CheckTensors, ElementsOfAnOutputDoNotCoincide) {
  Call c;
  c.f.out.head_stride = 0;
  EXPECT_EQ(c.forward(),
            "[here] elements of an output must not coincide, found batch, head "
            "and token strides of 96, 0 and 8 for out [2, 4, 3, 8]");
  c.f.out.head_stride = 23;  // a head spans 24
  EXPECT_NE(c.forward(), "");
  c.f.out.head_stride = 24;
  EXPECT_EQ(c.forward(), "");
  c.f.out.batch_stride = 95;
  EXPECT_NE(c.forward(), "");
}

TEST(CheckTensors, StridesOfInputsMayBroadcast) {
  Call c;
  c.f.k.head_stride = c.f.k.batch_stride = 0;
  c.f.v.batch_stride = 0;
  c.f.q.head_stride = 0;
  EXPECT_EQ(c.forward(), "");
}

TEST(CheckTensors, StridesOfSizeOneDoNotCount) {
  Call c;
  c.plan = {.batch = 1, .q_len = 1, .kv_len = 1, .heads = 1};
  c.shape.heads = c.shape.kv_heads = 1;
  c.f = {.q = {c.q.data(), Dtype::f32, 1, 1, 1, 16, 0, INT64_MAX, 3},
         .k = {c.k.data(), Dtype::f32, 1, 1, 1, 16, INT64_MAX, 0, 0},
         .v = {c.v.data(), Dtype::f32, 1, 1, 1, 8},
         .sink_logits = {},
         .out = {c.out.data(), Dtype::f32, 1, 1, 1, 8, 0, 0, INT64_MAX},
         .lse = {}};
  EXPECT_EQ(c.forward(), "");
}

TEST(CheckTensors, TakesAnyOrderOfDimensions) {
  Call c;
  c.f.q = TensorView::bshd(c.q.data(), Dtype::f32, 2, 4, 3, 16);
  c.f.k = TensorView::bshd(c.k.data(), Dtype::f32, 2, 2, 5, 16);
  c.f.v = TensorView::bshd(c.v.data(), Dtype::f32, 2, 2, 5, 8);
  c.f.out = MutableTensorView::bshd(c.out.data(), Dtype::f32, 2, 4, 3, 8);
  EXPECT_EQ(c.forward(), "");
  // [tokens, batch, heads, dim], rows of 8 padded to 12.
  std::vector<float> wide(3 * 2 * 4 * 12);
  c.f.out = {wide.data(), Dtype::f32, 2, 4, 3, 8, 48, 12, 96};
  EXPECT_EQ(c.forward(), "");
}

TEST(CheckTensors, SixteenBitsNeedHalfTheAlignment) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
    Call c;
    for (TensorView* t : {&c.f.q, &c.f.k, &c.f.v}) t->dtype = dtype;
    c.f.out.dtype = dtype;
    EXPECT_EQ(c.forward(), "");
    c.f.q.data = reinterpret_cast<char*>(c.q.data()) + 2;
    EXPECT_EQ(c.forward(), "");
    c.f.q.data = reinterpret_cast<char*>(c.q.data()) + 1;
    EXPECT_NE(c.forward(), "");
  }
}

// Gradients as the parts of one fused buffer, in the layouts that hosts use.
TEST(CheckTensors, OutputsMayInterleaveInOneBuffer) {
  constexpr int64_t kTokens = 5, kDim = 16;
  Call c;
  c.plan = {.batch = 2, .q_len = kTokens, .kv_len = kTokens, .heads = 1};
  c.shape = {4, 2, kDim, kDim, {}};
  std::vector<float> q(2 * 4 * kTokens * kDim), kv(q.size() / 2), lse(40);
  std::vector<float> fused(2 * q.size());
  const auto in = [&](std::vector<float>& data, int64_t heads) {
    return TensorView::bhsd(data.data(), Dtype::f32, 2, heads, kTokens, kDim);
  };
  const auto part = [&](int64_t heads, int64_t offset, int64_t batch_stride,
                        int64_t head_stride, int64_t token_stride) {
    return MutableTensorView{
        fused.data() + offset, Dtype::f32,  2,           heads, kTokens, kDim,
        batch_stride,          head_stride, token_stride};
  };
  c.f.q = in(q, 4);
  c.f.k = c.f.v = in(kv, 2);
  c.f.out = MutableTensorView::bhsd(q.data(), Dtype::f32, 2, 4, kTokens, kDim);
  c.g.dout = in(q, 4);
  c.f.lse = lse;
  c.g.dlse = {};

  // [batch, tokens, (4 + 2 + 2) heads, dim].
  constexpr int64_t kToken = 8 * kDim;
  c.g.dq = part(4, 0, kTokens * kToken, kDim, kToken);
  c.g.dk = part(2, 4 * kDim, kTokens * kToken, kDim, kToken);
  c.g.dv = part(2, 6 * kDim, kTokens * kToken, kDim, kToken);
  EXPECT_EQ(c.backward(), "");
  // The parts may have any order.
  c.g.dq = part(4, 4 * kDim, kTokens * kToken, kDim, kToken);
  c.g.dk = part(2, 0, kTokens * kToken, kDim, kToken);
  c.g.dv = part(2, 2 * kDim, kTokens * kToken, kDim, kToken);
  EXPECT_EQ(c.backward(), "");
  // One element too close.
  c.g.dv = part(2, 2 * kDim - 1, kTokens * kToken, kDim, kToken);
  EXPECT_EQ(c.backward(),
            "[here] an output must share no byte with another array, found dk "
            "for dv");
  // [batch, (4 + 2 + 2) heads, tokens, dim].
  constexpr int64_t kHead = kTokens * kDim;
  c.g.dq = part(4, 0, 8 * kHead, kHead, kDim);
  c.g.dk = part(2, 4 * kHead, 8 * kHead, kHead, kDim);
  c.g.dv = part(2, 6 * kHead, 8 * kHead, kHead, kDim);
  EXPECT_EQ(c.backward(), "");
  // [batch, tokens, 2 kv heads, (2 + 1 + 1), dim] for dk and dv only: the heads
  // of dq have no single stride there.
  std::vector<float> alone(q.size());
  c.g.dq =
      MutableTensorView::bhsd(alone.data(), Dtype::f32, 2, 4, kTokens, kDim);
  c.g.dk = part(2, 2 * kDim, kTokens * kToken, 4 * kDim, kToken);
  c.g.dv = part(2, 3 * kDim, kTokens * kToken, 4 * kDim, kToken);
  EXPECT_EQ(c.backward(), "");
  c.g.dv = part(2, 6 * kDim, kTokens * kToken, 4 * kDim, kToken);
  EXPECT_NE(c.backward(), "");  // head 0 of dv is head 1 of dk
}

// Calls that pass share no byte, by sets of bytes; enough calls pass.
TEST(CheckTensors, RandomViewsAgreeWithSetsOfBytes) {
  std::mt19937 random(11);
  std::vector<float> shared(4096);
  int passed = 0;
  int refused_well = 0;
  for (int round = 0; round < 20000; ++round) {
    Call c;
    c.f.sink_logits.reset();
    c.f.lse = {};
    const auto pick = [&](std::initializer_list<int64_t> of) {
      return of.begin()[random() % of.size()];
    };
    const auto stride = [&] {
      return pick({0, 8, 16, 24, 32, 40, 48, 64, 96, 128, 192, 384, 23, 100});
    };
    const auto offset = [&] { return pick({0, 8, 16, 24, 32, 96, 384, 1000}); };
    c.plan.batch = c.f.q.batch = c.f.out.batch = pick({1, 2});
    c.f.k.batch = c.f.v.batch = c.plan.batch;
    c.f.q = {shared.data() + offset(),
             Dtype::f32,
             c.plan.batch,
             4,
             3,
             16,
             stride(),
             stride(),
             stride()};
    c.f.out = {shared.data() + offset(),
               Dtype::f32,
               c.plan.batch,
               4,
               3,
               8,
               stride(),
               stride(),
               stride()};
    const std::string error = c.forward();
    std::set<int64_t> of_out;
    bool coincide = false;
    const auto each = [](const auto& t, const auto& visit) {
      for (int64_t b = 0; b < t.batch; ++b) {
        for (int64_t h = 0; h < t.heads; ++h) {
          for (int64_t s = 0; s < t.tokens; ++s) {
            const float* row = static_cast<const float*>(t.data) +
                               b * t.batch_stride + h * t.head_stride +
                               s * t.token_stride;
            for (int64_t d = 0; d < t.dim; ++d) visit(row + d);
          }
        }
      }
    };
    each(c.f.out, [&](const float* p) {
      coincide |= !of_out.insert(p - shared.data()).second;
    });
    each(c.f.q, [&](const float* p) {
      coincide |= of_out.contains(p - shared.data());
    });
    if (error.empty()) {
      ++passed;
      ASSERT_FALSE(coincide) << "round " << round;
    } else if (coincide) {
      ++refused_well;
    }
  }
  EXPECT_GT(passed, 200);
  EXPECT_GT(refused_well, 5000);
}

}  // namespace
}  // namespace tessera::lanes
