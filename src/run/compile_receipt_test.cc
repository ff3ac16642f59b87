// run/compile_receipt_test.cc: tests that the receipt of a kernel that a C++
// caller compiled holds what was given, and stays true if compiled again.
#include "run/compile_receipt.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "run/verify.h"

namespace tessera::run {
namespace {

Request request_of() {
  Request r;
  r.masks = {*parse_mask("causal & documents")};
  r.q_len = r.kv_len = 512;
  r.tile = kMosaicTile;
  return r;
}

Result<MosaicKernel> make_kernel(const Request& request,
                                 const MosaicOptions& options = {}) {
  Facts present;
  present.doc_ids = Ints{};
  const AttentionCall call = {{2, 2, 128, 128, {}, 0}, Dtype::bf16};
  return make_mosaic_kernel(request, present, call, "v6e:1x1", options);
}

receipt::Receipt receipt_of(const Request& request,
                            const MosaicKernel& kernel) {
  CompiledKernel compiled = {request, kernel, "the request", "the default"};
  compiled.given.masks = {"documents & causal"};
  compiled.given.docs = "lengths:200,312";
  CompiledBy by;
  by.target = "v6e:1x1";
  by.plugin = {"/nowhere/libtpu.so", "0.77", "tpu", "", by.target, 0};
  by.compile_ms = 3;
  by.machine = {"A CPU", 2,    {Isa::portable},
                true,    true, {{"libtpu", "tpu", 0}}};
  return compile_receipt(compiled, by);
}

TEST(CompileReceipt, HoldsTheKernelAndWhatWasGiven) {
  const Request request = request_of();
  const auto kernel = make_kernel(request);
  ASSERT_TRUE(kernel.ok()) << kernel.error().message;
  const receipt::Receipt r = receipt_of(request, *kernel);
  const auto ok = check_receipt(receipt::receipt_json(r));
  EXPECT_TRUE(ok.ok()) << ok.error().message;
  EXPECT_FALSE(r.ran());
  EXPECT_EQ(r.lane.chosen, "mosaic");
  EXPECT_EQ(r.request.masks, std::vector<std::string>{"documents & causal"});
  EXPECT_EQ(r.request.docs, "lengths:200,312");
  EXPECT_EQ(r.request.target, "v6e:1x1");
  EXPECT_EQ(r.contract, kernel->plan.key);
  const std::map<std::string, std::string> keys = {
      {"forward", kernel->contract.key}};
  EXPECT_EQ(r.kernels, keys);
  EXPECT_EQ(r.compile_ms, 3);
}

TEST(CompileReceipt, IsTrueOfTheSameKernelAlone) {
  const Request request = request_of();
  const auto kernel = make_kernel(request);
  ASSERT_TRUE(kernel.ok()) << kernel.error().message;
  const auto claim = receipt::parse_receipt(
      receipt::receipt_json(receipt_of(request, *kernel)));
  ASSERT_TRUE(claim.ok()) << claim.error().message;
  MosaicOptions other;
  other.fetch_ahead = 3;
  for (const auto& [options, is_true] :
       {std::pair(MosaicOptions(), true), std::pair(other, false)}) {
    const auto verdict =
        verify_receipt(*claim, [&, &options = options](const auto&) {
          auto again = make_kernel(request, options);
          EXPECT_TRUE(again.ok()) << again.error().message;
          return Result(SecondRun{receipt_of(request, *again), {}});
        });
    ASSERT_TRUE(verdict.ok()) << verdict.error().message;
    EXPECT_EQ(verdict->is_true(), is_true);
    std::map<std::string, std::string> wrong;
    for (const ReceiptDifference& d : verdict->wrong) wrong[d.field] = d.b;
    EXPECT_EQ(wrong.count("parameters.fetch_ahead"), is_true ? 0U : 1U);
  }
}

}  // namespace
}  // namespace tessera::run
