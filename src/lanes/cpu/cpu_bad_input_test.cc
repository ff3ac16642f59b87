// lanes/cpu/cpu_bad_input_test.cc: input that the cpu lane refuses by name and
// before any work, so that no output changes by a bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "lanes/cpu/cpu.h"
#include "tests/attention_case.h"

namespace tessera::cpu {
namespace {

using testing::AttentionArrays;
using testing::AttentionCase;

AttentionCase small() {
  AttentionCase c;
  c.plan.masks = {causal()};
  c.plan.q_len = 20, c.plan.kv_len = 30;
  c.plan.tile = {16, 8};
  c.shape = {4, 2, 16, 8, {}, 0};
  c.sinks = true;
  return c;
}

// Sets TESSERA_ISA during the lifetime of the object.
class Environment {
 public:
  explicit Environment(const std::string& isa) {
    const char* was = std::getenv("TESSERA_ISA");
    if (was != nullptr) was_ = was;
    setenv("TESSERA_ISA", isa.c_str(), 1);
  }
  Environment(const Environment&) = delete;
  ~Environment() {
    if (was_) {
      setenv("TESSERA_ISA", was_->c_str(), 1);
    } else {
      unsetenv("TESSERA_ISA");
    }
  }

 private:
  std::optional<std::string> was_;
};

std::string prepare_error(const Batch& batch, const CpuOptions& options = {}) {
  const auto work = cpu_prepare(batch, options);
  return work ? "ok" : work.error().message;
}

TEST(CpuBadInput, FactsThatChangedUnderTheirPlan) {
  const AttentionArrays arrays(small());
  Request request = arrays.request;
  request.masks = {*parse_mask("causal & documents")};
  std::vector<int32_t> ids(static_cast<size_t>(request.batch * request.kv_len),
                           3);
  Facts facts;
  facts.doc_ids = ids;
  const auto batch = BorrowedBatch::make(request, facts);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  EXPECT_EQ(prepare_error(*batch), "ok");
  ids.back() = 4;
  EXPECT_EQ(prepare_error(*batch),
            "[cpu] facts must be as they were planned, found others (remake "
            "the batch when its facts change)");
}

// Expects both directions to refuse a good call after `change`.
struct Call {
  AttentionShape shape;
  ForwardTensors forward;
  Gradients gradients;
  CpuOptions options;
};
void expect_refused(const char* rule,
                    const std::function<void(Call&)>& change) {
  SCOPED_TRACE(rule);
  AttentionArrays arrays(small());
  const auto work = cpu_prepare(*BorrowedBatch::make(arrays.request, {}));
  ASSERT_TRUE(work.ok());
  const std::vector<uint8_t> before = arrays.bits();
  Call call{arrays.c.shape, arrays.forward(true), arrays.gradients(), {}};
  change(call);
  const auto forward =
      cpu_forward(*work, call.shape, call.forward, call.options);
  ASSERT_FALSE(forward.ok());
  EXPECT_NE(forward.error().message.find(rule), std::string::npos)
      << forward.error().message;
  const auto backward = cpu_backward(*work, call.shape, call.forward,
                                     call.gradients, call.options);
  ASSERT_FALSE(backward.ok());
  EXPECT_NE(backward.error().message.find(rule), std::string::npos)
      << backward.error().message;
  EXPECT_EQ(arrays.bits(), before);
}

TEST(CpuBadInput, NumbersOfThreads) {
  for (const int threads : {-1, 1025, std::numeric_limits<int>::max(),
                            std::numeric_limits<int>::min()}) {
    expect_refused("[cpu] threads must be 0 to 1024, found ",
                   [=](Call& c) { c.options.threads = threads; });
    AttentionArrays arrays(small());
    CpuOptions options;
    options.threads = threads;
    const std::string error =
        prepare_error(*BorrowedBatch::make(arrays.request, {}), options);
    EXPECT_TRUE(error.starts_with("[cpu] threads must be 0 to 1024, found "))
        << error;
  }
}

TEST(CpuBadInput, TensorsAndShapes) {
  expect_refused("[cpu] q must be [batch, heads, q_len, head_dim]",
                 [](Call& c) { c.forward.q.dim = 8; });
  expect_refused("[cpu] k must be", [](Call& c) { c.forward.k.tokens = 31; });
  expect_refused("[cpu] tensors must share the dtype of q",
                 [](Call& c) { c.forward.v.dtype = Dtype::bf16; });
  expect_refused("[cpu] tensors must be F32, BF16 or F16",
                 [](Call& c) { c.forward.q.dtype = Dtype::f64; });
  expect_refused("[cpu] data must be there",
                 [](Call& c) { c.forward.v.data = nullptr; });
  expect_refused("[cpu] strides must be 0 or more",
                 [](Call& c) { c.forward.q.head_stride = -16; });
  expect_refused("[cpu] token_stride must be at least",
                 [](Call& c) { c.forward.k.token_stride = 15; });
  expect_refused("[cpu] lse must hold",
                 [](Call& c) { c.forward.lse = c.forward.lse.first(79); });
  expect_refused("[cpu] sink_logits must hold", [](Call& c) {
    c.forward.sink_logits = c.forward.sink_logits->first(3);
  });
  expect_refused("[cpu] numbers must be finite", [](Call& c) {
    c.shape.scale = std::numeric_limits<double>::infinity();
  });
  expect_refused("[cpu] numbers must be finite and 0 or more",
                 [](Call& c) { c.shape.softcap = -1; });
  expect_refused("[cpu] kv_heads must divide heads",
                 [](Call& c) { c.shape.kv_heads = 3; });
  expect_refused("[cpu] head dims must be a multiple of 8",
                 [](Call& c) { c.shape.head_dim = 12; });
}

TEST(CpuBadInput, OutputsThatOverlap) {
  const char* const rule = "[cpu] an output must share no byte with another";
  expect_refused(rule, [](Call& c) {
    c.forward.out.data = const_cast<void*>(c.forward.v.data);
    c.gradients.dv.data = const_cast<void*>(c.forward.v.data);
  });
  expect_refused(rule, [](Call& c) {
    c.forward.lse = {static_cast<float*>(c.forward.out.data), 80};
    c.gradients.dk.data = c.gradients.dq.data;
  });
  expect_refused("[cpu] elements of an output must not coincide", [](Call& c) {
    c.forward.out.head_stride = 8;
    c.gradients.dq.head_stride = 16;
  });
}

TEST(CpuBadInput, IsasThatAreNotThere) {
  const std::vector<Isa> there = machine_isas();
  for (const char* text : {"sse9", "AVX2", " ", "avx2 "}) {
    const Environment environment(text);
    expect_refused("TESSERA_ISA", [](Call&) {});
  }
  bool absent = false;
  for (const Isa isa : {Isa::avx2, Isa::avx512, Isa::avx512bf16, Isa::amx}) {
    if (std::ranges::find(there, isa) != there.end()) continue;
    absent = true;
    expect_refused(std::string(to_string(isa)).c_str(),
                   [=](Call& c) { c.options.isa = isa; });
    const Environment environment{std::string(to_string(isa))};
    expect_refused(std::string(to_string(isa)).c_str(), [](Call&) {});
  }
  if (!absent) GTEST_SKIP() << "this machine has every ISA";
}

// A forced ISA runs, and takes precedence over the environment.
TEST(CpuBadInput, IsasThatAreThereRun) {
  AttentionArrays arrays(small());
  const auto work = cpu_prepare(*BorrowedBatch::make(arrays.request, {}));
  const auto ran = [&](const CpuOptions& options) {
    return cpu_forward(*work, arrays.c.shape, arrays.forward(true), options)
        ->isa;
  };
  {
    const Environment environment("portable");
    EXPECT_EQ(ran({}), Isa::portable);
    for (const Isa isa : machine_isas()) {
      CpuOptions options;
      options.isa = isa;
      // f32 has no kernels beyond avx512, which are for bf16 pairs.
      EXPECT_EQ(ran(options), std::min(isa, Isa::avx512));
    }
  }
  const Environment environment("");
  EXPECT_EQ(ran({}), std::min(machine_isas().back(), Isa::avx512));
}

}  // namespace
}  // namespace tessera::cpu
