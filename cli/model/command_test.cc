// cli/model/command_test.cc: `tessera model` as a user runs it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/files.h"
#include "model/checkpoint.h"
#include "model/start.h"
#include "tests/program.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class ModelCommand : public tessera::testing::Program {
 protected:
  std::string path(const std::string& name) { return folder_.file(name); }

  void write_start() {
    ModelConfig m;
    m.tied_head = false;
    const auto parameters = *model_parameters(m, *find_layer_spec("reference"));
    model::TrainState state;
    for (const ModelParameter& p : parameters) {
      for (auto& kind : state.values) {
        kind.push_back(model::start_values(p, 3));
      }
    }
    const std::string bytes =
        *model::write_checkpoint(m, {}, {}, parameters, state);
    ASSERT_TRUE(write_file(path("start"), bytes));
  }
};

TEST_F(ModelCommand, GoesOutAndComesBack) {
  write_start();
  program({"model", "export", path("start"), "-o", path("theirs"), "--json"});
  ASSERT_EQ(code_, kOk) << err_;
  const json out = json::parse(out_);
  EXPECT_EQ(out["files"].size(), 2U);
  EXPECT_EQ(out["model"]["width"], 64);
  program({"model", "import", path("theirs"), "-o", path("back"), "--json"});
  ASSERT_EQ(code_, kOk) << err_;
  const json back = json::parse(out_);
  EXPECT_EQ(back["parameters"], out["parameters"]);
  EXPECT_EQ(back["model"], out["model"]);
  program({"model", "export", path("back"), "-o", path("again")});
  ASSERT_EQ(code_, kOk) << err_;
  EXPECT_NE(out_.find("2 layers of width 64"), std::string::npos) << out_;
  EXPECT_EQ(*read_file(path("again/model.safetensors"), 1 << 24),
            *read_file(path("theirs/model.safetensors"), 1 << 24));
}

TEST_F(ModelCommand, ReadsTheFilesOfAnIndex) {
  write_start();
  program({"model", "export", path("start"), "-o", path("theirs")});
  ASSERT_EQ(code_, kOk) << err_;
  fs::rename(path("theirs/model.safetensors"), path("theirs/part"));
  const auto index = [&](const std::string& text) {
    std::ofstream(path("theirs/model.safetensors.index.json")) << text;
    program({"model", "import", path("theirs"), "-o", path("back")});
  };
  index(R"({"weight_map": {"a": "part", "b": "part"}})");
  EXPECT_EQ(code_, kOk) << err_;
  const auto refuses = [&](const std::string& text, const std::string& why) {
    fs::remove(path("back"));
    index(text);
    EXPECT_EQ(code_, kRefused);
    EXPECT_NE(err_.find(why), std::string::npos) << err_;
    EXPECT_FALSE(fs::exists(path("back")));
  };
  refuses(R"({"weight_map": {"a": "../part"}})", "must lie beside it");
  refuses(R"({"weight_map": {"a": "gone"}})", "found no file");
  refuses(R"({"weight_map": {}})", "must have a weight_map");
  refuses(R"({"weight_map": {"a": 3}})", "a file of the index");
  refuses("[", "(in '" + path("theirs/model.safetensors.index.json") + "')");
  std::ofstream(path("theirs/config.json")) << "{}";
  refuses(R"({"weight_map": {"a": "part"}})",
          "found none (in '" + path("theirs/config.json") + "')");
}

// The error comes before any work, and no file changes.
TEST_F(ModelCommand, NeverWritesOverItsSource) {
  write_start();
  program({"model", "export", path("start"), "-o", path("theirs")});
  ASSERT_EQ(code_, kOk) << err_;
  const auto kept = [&](const char* name) {
    return *read_file(path(name), 1 << 24);
  };
  const std::string weights = kept("theirs/model.safetensors");
  const std::string config = kept("theirs/config.json");
  const auto refuses = [&](const std::string& out) {
    program({"model", "import", path("theirs"), "-o", out});
    EXPECT_EQ(code_, kRefused) << out;
    EXPECT_NE(err_.find("each file must have a name of its own"),
              std::string::npos)
        << err_;
  };
  fs::create_symlink(path("theirs/model.safetensors"), path("link"));
  for (const char* out : {"theirs/model.safetensors", "theirs/config.json",
                          "theirs/../theirs/model.safetensors", "link"}) {
    refuses(path(out));
    EXPECT_EQ(kept("theirs/model.safetensors"), weights);
    EXPECT_EQ(kept("theirs/config.json"), config);
  }
  fs::rename(path("theirs/model.safetensors"), path("theirs/part"));
  std::ofstream(path("theirs/model.safetensors.index.json"))
      << R"({"weight_map": {"a": "part"}})";
  refuses(path("theirs/part"));
  refuses(path("theirs/model.safetensors.index.json"));
  // A file that would be read instead of the index is not written either.
  refuses(path("theirs/model.safetensors"));
  EXPECT_EQ(kept("theirs/part"), weights);
  EXPECT_FALSE(fs::exists(path("theirs/model.safetensors")));

  fs::copy_file(path("start"), path("theirs/model.safetensors"));
  const std::string start = kept("start");
  program({"model", "export", path("theirs/model.safetensors"), "-o",
           path("theirs")});
  EXPECT_EQ(code_, kRefused);
  EXPECT_EQ(kept("theirs/model.safetensors"), start);
}

// It overwrites no other model, and writes into no folder of rows.
TEST_F(ModelCommand, WritesAFolderOfItsOwn) {
  write_start();
  fs::create_directory(path("empty"));
  program({"model", "export", path("start"), "-o", path("empty")});
  ASSERT_EQ(code_, kOk) << err_;
  ASSERT_TRUE(write_file(path("empty/config.json"), "mine"));
  fs::create_directory(path("rows"));
  ASSERT_TRUE(write_file(path("rows/rows-00000.safetensors"), "rows"));
  fs::create_directory_symlink(path("rows"), path("way"));
  for (const char* out : {"empty", "rows", "way"}) {
    program({"model", "export", path("start"), "-o", path(out)});
    EXPECT_EQ(code_, kRefused);
    EXPECT_EQ(err_,
              "tessera: [hugging face] a model's folder must be new or empty, "
              "found files in '" +
                  path(out) + "'\n");
  }
  EXPECT_EQ(*read_file(path("empty/config.json"), 1 << 20), "mine");
  EXPECT_FALSE(fs::exists(path("rows/model.safetensors")));
}

TEST_F(ModelCommand, RefusedExportsLeaveNoFolder) {
  std::ofstream(path("start")) << "no checkpoint";
  fs::create_directory(path("old"));
  for (const char* out : {"new/deep", "old/deep", "old"}) {
    program({"model", "export", path("start"), "-o", path(out)});
    EXPECT_EQ(code_, kRefused);
    EXPECT_TRUE(err_.ends_with(" (in '" + path("start") + "')\n")) << err_;
    EXPECT_FALSE(fs::exists(path("new")));
    EXPECT_TRUE(fs::exists(path("old")));
    EXPECT_FALSE(fs::exists(path("old/deep")));
  }
  // An output that exists is refused before the checkpoint is read.
  fs::create_directories(path("taken/config.json"));
  program({"model", "export", path("start"), "-o", path("taken")});
  EXPECT_EQ(code_, kRefused);
  EXPECT_NE(err_.find("a model's folder must be new or empty"),
            std::string::npos)
      << err_;
  EXPECT_TRUE(fs::is_directory(path("taken/config.json")));
  program({"model", "export", path("start"), "-o", path("start/in")});
  EXPECT_EQ(code_, kRefused);
  EXPECT_NE(err_.find("a model's folder must be one that can be made"),
            std::string::npos)
      << err_;
}

TEST_F(ModelCommand, RefusesWhatIsNoModel) {
  std::ofstream(path("start")) << "no checkpoint";
  program({"model", "export", path("start"), "-o", path("theirs")});
  EXPECT_EQ(code_, kRefused);
  EXPECT_FALSE(fs::exists(path("theirs")));
  program({"model", "import", path("absent"), "-o", path("absent/start")});
  EXPECT_EQ(code_, kRefused);
}

}  // namespace
}  // namespace tessera::cli
