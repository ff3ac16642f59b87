// cli/run/run_tile_test.cc: if the rules choose Tessera's TPU kernels, an open
// tile is that of their settings, from flags to a receipt.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "cli/receipt/second_run.h"
#include "cli/run/run.h"
#include "lanes/mosaic/settings.h"
#include "lanes/xla/writer.h"
#include "receipt/read.h"
#include "run/verify.h"
#include "tessera/machine.h"
#include "tessera/mosaic.h"
#include "tests/plugins.h"
#include "tests/stablehlo_kernel.h"
#include "tests/temp_folder.h"
#include "tests/variable.h"

namespace tessera::cli {
namespace {

// Writes a program that computes what the kernel of that tile computes. A test
// plugin that claims to be a TPU runs this file instead of the kernel.
Result<void> write_plain_program(const std::string& path, const Tile& tile) {
  Request request;
  request.masks = {*parse_mask("causal & documents")};
  request.q_len = request.kv_len = 1024;
  request.tile = tile;
  OwnedFacts facts;
  facts.doc_ids = std::vector<int32_t>(1024, 0);
  const OwnedBatch batch = *OwnedBatch::make(request, std::move(facts));
  request = batch.request();
  request.ceilings.max_steps = make_contract(batch)->steps;
  AttentionCall call;
  call.shape = {2, 2, 128, 128, {}, 0};
  call.dtype = Dtype::bf16;
  const std::string target(find_chip("v6e")->target);
  const MosaicOptions options =
      mosaic::fit_passes(request, batch.facts(), call, target,
                         {.numbers = Numbers::any})
          .setting.options;
  const auto kernel =
      make_mosaic_kernel(request, batch.facts(), call, target, options);
  if (!kernel) return kernel.error();
  xla::Writer w(testing::StablehloKernel::arguments(*kernel));
  return write_file(
      path,
      w.module("plain", testing::StablehloKernel(w, *kernel, false).results()));
}

// From flags to a receipt that verifies.
TEST(KernelTileRun, TheRulesChoiceRunsAtIt) {
  TESSERA_NEEDS_PLUGINS();
  const auto real = testing::real_plugin("xla_cpu_pjrt");
  if (testing::is_absent(real)) GTEST_SKIP() << real.error().message;
  ASSERT_TRUE(real.ok()) << real.error().message;
  const testing::TempFolder folder;
  const std::string program = folder.file("program");
  const testing::Variable wrapped("TESSERA_TEST_WRAPPED_PLUGIN",
                                  (*real)->path().c_str());
  const testing::Variable replaces("TESSERA_TEST_TPU_PROGRAM", program.c_str());
  const auto written = write_plain_program(program, {512, 512});
  ASSERT_TRUE(written.ok()) << written.error().message;

  const std::string tpu = testing::fake_plugin("tpu");
  RunFlags flags;
  flags.request.masks = {"causal & documents"};
  flags.request.q_len = "1024";
  flags.request.docs = "lengths:1024";
  flags.heads = "2";
  flags.dtype = "bf16";
  flags.cache = "off";
  flags.check = true;
  auto options = read_run_options(flags);
  ASSERT_TRUE(options.ok()) << options.error().message;
  options->lanes.machine = {"A CPU", 2,    {Isa::portable},
                            true,    true, {{tpu, "tpu", 1, "v6e"}}};
  const auto ran = run_request(flags, std::move(*options));
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  const receipt::Receipt& r = ran->receipt;
  EXPECT_EQ(r.lane.requested, "auto");
  EXPECT_EQ(r.lane.executed, "mosaic");
  EXPECT_EQ(r.request.tile, "512x512");
  EXPECT_EQ(r.settings.at("tile"),
            "the table of heads alone, for 512 keys a query; borrowed, for its "
            "rows are of finite numbers, 1 head");
  EXPECT_EQ(ran->plan.tiles, 4);
  EXPECT_TRUE(r.check.passed) << r.check.worst;

  const auto claim = receipt::parse_receipt(receipt::receipt_json(r));
  ASSERT_TRUE(claim.ok()) << claim.error().message;
  const auto verdict =
      run::verify_receipt(*claim, [&](const receipt::Receipt& claimed) {
        return second_run(claimed, tpu);
      });
  ASSERT_TRUE(verdict.ok()) << verdict.error().message;
  EXPECT_EQ(verdict->contradictions, std::vector<std::string>());
  EXPECT_TRUE(verdict->wrong.empty()) << verdict->wrong.front().field;
}

}  // namespace
}  // namespace tessera::cli
