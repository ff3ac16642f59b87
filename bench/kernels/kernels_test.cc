// bench/kernels/kernels_test.cc: `tessera-bench kernels`: every variant of this
// machine has its rows, and its results are within their bounds.
#include "bench/kernels/kernels.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "cli/command.h"
#include "tests/program.h"

namespace tessera::bench {
namespace {

using nlohmann::json;

class KernelsBench : public tessera::testing::Program {};

TEST_F(KernelsBench, HasARowForEverySizeDtypeAndVariant) {
#ifdef TESSERA_SANITIZED  // the check of the others would take minutes
  const std::vector<const KernelOperation*> operations = {&decode_operation()};
#else
  const std::vector<const KernelOperation*> operations = {
      &forward_operation(), &backward_operation(), &decode_operation()};
#endif
  for (const KernelOperation* operation : operations) {
    const std::string name(operation->name);
    ASSERT_EQ(bench({"kernels", name, "--seconds", "0.001", "--json"}),
              cli::kOk)
        << err_;
    const json result = json::parse(out_);
    std::set<std::string> isas;
    size_t rows = 0;
    for (const json& row : result["rows"]) {
      EXPECT_EQ(row["operation"], name);
      EXPECT_GT(row["gflops"], 0);
      EXPECT_GT(row["share_of_peak"], 0);
      EXPECT_LE(row["bound_ratio"], 1);
      isas.insert(row["isa"]);
      rows += row["bf16_pairs"] ? 0 : 1;
    }
    size_t floats = 0;  // variants that take every dtype
    for (const Isa isa : machine_isas()) {
      // Decode has no AMX kernel, because it is bound by memory.
      const size_t kernels = isa == Isa::amx && name == "decode" ? 0 : 1;
      EXPECT_EQ(isas.count(std::string(to_string(isa))), kernels) << name;
      floats += isa >= Isa::avx512bf16 ? 0 : 1;
    }
    EXPECT_EQ(rows, operation->sizes.size() * 3 * floats) << name;
  }
}

TEST_F(KernelsBench, OneIsaAlone) {
  ASSERT_EQ(bench({"kernels", "decode", "--isa", "portable", "--seconds",
                   "0.001", "--json"}),
            cli::kOk)
      << err_;
  const json result = json::parse(out_);
  for (const json& row : result["rows"]) {
    EXPECT_EQ(row["isa"], "portable");
  }
}

TEST_F(KernelsBench, RefusesWhatIsNotThere) {
  EXPECT_EQ(bench({"kernels", "sideways"}), cli::kRefused);
  EXPECT_NE(err_.find("the operation must be one of forward, backward, decode, "
                      "found 'sideways'"),
            std::string::npos)
      << err_;
  EXPECT_EQ(bench({"kernels", "--isa", "sse9"}), cli::kRefused);
  EXPECT_EQ(bench({"kernels", "--seconds", "0"}), cli::kRefused);
}

// A causal query sees the keys up to its own; the last one sees all keys.
TEST(KernelsCall, LayersAreThoseOfTheMask) {
  auto call = make_kernel_call({"causal", 4, 6, 1, 8}, Dtype::f32, false);
  ASSERT_TRUE(call);
  EXPECT_EQ(call->pairs(), 3 + 4 + 5 + 6);
  EXPECT_EQ(last_keys(*call, 0, 6, 0, 4),
            (std::vector<int32_t>{3, 4, 4, 4, 4, 4}));
  EXPECT_EQ(last_keys(*call, 0, 6, 4, 2),
            (std::vector<int32_t>{0, 0, 1, 2, 2, 2}));
  EXPECT_TRUE(last_keys(*call, 1, 3, 0, 4).empty());
  call = make_kernel_call({"full", 4, 6, 2, 8}, Dtype::f32, false);
  ASSERT_TRUE(call);
  EXPECT_EQ(call->pairs(), 48);
  EXPECT_TRUE(last_keys(*call, 0, 6, 0, 6).empty());
}

}  // namespace
}  // namespace tessera::bench
