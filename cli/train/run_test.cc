// cli/train/run_test.cc: the library's run_training() equals `tessera train`
// and handles errors of its callbacks.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/fail.h"
#include "base/files.h"
#include "model/training_run.h"
#include "tests/packed_program.h"
#include "tests/plugins.h"

namespace tessera::cli {
namespace {

using nlohmann::json;

constexpr const char* kModel =
    R"({"vocab": 61, "width": 32, "head_dim": 8, "mlp_width": 48,
        "layers": 1})";

class TrainRun : public testing::PackedProgram {
 protected:
  void SetUp() override {
    const auto plugin = testing::real_plugin("lammps_jax_pjrt_cpu");
    if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
    pack_documents(
        12, [](int d) { return 20 + d; }, 128);
    std::ofstream(file("model.json")) << kModel;
  }

  model::TrainingRun asked(int64_t steps) const {
    model::TrainingRun out;
    out.options.model = *parse_model_config(kModel);
    out.options.spec = *find_layer_spec("xla");
    out.options.rows = 2;
    out.options.tile = {32, 32};
    out.options.xla.cache_folder = file("cache");
    out.data = file("rows");
    out.rates = {{.learning_rate = 1e-2}, 2, steps};
    return out;
  }

  // Runs all steps with these callbacks.
  static Result<receipt::Receipt> trained(model::TrainingRun run,
                                          const model::TrainingCalls& calls) {
    auto rows = model::read_training_rows(run);
    if (!rows) return rows.error();
    return model::run_training(std::move(run), *rows, calls);
  }
  // Callbacks that record all that they get.
  model::TrainingCalls keeping() {
    model::TrainingCalls out;
    out.stepped = [this](const StepReport& told, double) {
      steps_.push_back(told.step);
    };
    out.keep = [this](std::string_view checkpoint) {
      kept_.emplace_back(checkpoint);
      return Result<void>();
    };
    return out;
  }

  std::vector<int64_t> steps_;
  std::vector<std::string> kept_;
};

TEST_F(TrainRun, IsThatOfTheProgram) {
  program({"train",
           "--data",
           file("rows"),
           "--model",
           file("model.json"),
           "--rows",
           "2",
           "--tile",
           "32x32",
           "--cache",
           file("cache"),
           "--steps",
           "5",
           "--warmup",
           "2",
           "--rate",
           "1e-2",
           "--checkpoint",
           file("whole.safetensors"),
           "--json"});
  ASSERT_EQ(code_, kOk) << err_;
  const json told = json::parse(out_);

  model::TrainingRun run = asked(5);
  run.every = 2;
  auto receipt = trained(run, keeping());
  ASSERT_TRUE(receipt) << receipt.error().message;
  EXPECT_EQ(told["losses"], json(receipt->training.losses));
  EXPECT_EQ(told["program"], receipt->training.program);
  EXPECT_EQ(told["inputs"]["digests"], json(receipt->inputs.digests));
  EXPECT_EQ(told["output"]["digest"], receipt->output_digest);
  EXPECT_EQ(receipt->digest.size(), 32U);  // sealed
  EXPECT_EQ(steps_, (std::vector<int64_t>{1, 2, 3, 4, 5}));
  ASSERT_EQ(kept_.size(), 3U);  // after steps 2, 4 and 5
  EXPECT_EQ(kept_.back(), *read_file(file("whole.safetensors"), 1 << 24));
  EXPECT_EQ(digest_of(kept_.back()), receipt->output_digest);
}

TEST_F(TrainRun, GoesOnFromWhatWasKept) {
  auto whole = trained(asked(4), {});
  ASSERT_TRUE(whole) << whole.error().message;

  // The callback for checkpoints fails, as with a full disk.
  model::TrainingCalls calls = keeping();
  calls.keep = [&](std::string_view checkpoint) -> Result<void> {
    kept_.emplace_back(checkpoint);
    if (kept_.size() == 2) return invalid("test", "found two");
    return {};
  };
  model::TrainingRun part = asked(4);
  part.every = 1;
  auto ended = trained(part, calls);
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().message, "[test] found two");
  ASSERT_EQ(kept_.size(), 2U);

  model::TrainingRun rest = asked(4);
  rest.start = "kept";
  rest.resumed = kept_.back();
  rest.options.seed = 9;  // unused: a resumed run draws nothing
  auto resumed = trained(rest, {});
  ASSERT_TRUE(resumed) << resumed.error().message;
  EXPECT_EQ(resumed->inputs.seed, 0U);
  EXPECT_EQ(resumed->training.first_step, 3);
  EXPECT_EQ(resumed->training.start, "kept");
  EXPECT_EQ(resumed->output_digest, whole->output_digest);
  const auto& losses = whole->training.losses;
  EXPECT_EQ(resumed->training.losses,
            std::vector<double>(losses.begin() + 2, losses.end()));
}

TEST_F(TrainRun, TakesNoStepThatIsNotItsOwn) {
  ASSERT_TRUE(trained(asked(1), keeping()));
  steps_.clear();
  model::TrainingRun done = asked(1);
  done.resumed = kept_.back();
  auto more = trained(done, keeping());
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().message,
            "[train] a step must be one of the run's and a warm-up at least 0 "
            "steps, found step 2 of 1 and a warm-up of 2");
  // No step runs after the callback `begun` has failed.
  model::TrainingCalls calls = keeping();
  calls.begun = [](const receipt::Receipt& r) -> Result<void> {
    return invalid("test", "found first step {}", r.training.first_step);
  };
  auto ended = trained(asked(1), calls);
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().message, "[test] found first step 1");
  EXPECT_TRUE(steps_.empty());
}

}  // namespace
}  // namespace tessera::cli
