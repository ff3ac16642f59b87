// cli/audit/command_test.cc: what `tessera audit` prints.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "tests/program.h"
#include "tests/temp_folder.h"

namespace tessera::cli {
namespace {

using nlohmann::json;
using AuditCommand = tessera::testing::Program;

// The bytes sent are those that `tessera shard` counts.
TEST_F(AuditCommand, OurProgramPasses) {
  const testing::TempFolder folder;
  const std::string file = folder.file("sharded.mlir");
  for (const bool backward : {false, true}) {
    std::vector<std::string> flags = {
        "shard", "--mask", "causal",       "--q-len",   "2048",  "--tile",
        "64x64", "--mesh", "data=1,seq=4", "--balance", "tasks", "--head-dim",
        "32",    "--emit", file,           "--json"};
    if (backward) flags.push_back("--backward");
    program(flags);
    ASSERT_EQ(code_, 0) << err_;
    const json shard = json::parse(out_);
    program({"audit", file, "--json"});
    ASSERT_EQ(code_, 0) << err_;
    const json audit = json::parse(out_);
    EXPECT_EQ(audit["partitions"], 4);
    EXPECT_EQ(audit["sent_bytes"],
              shard[backward ? "backward" : "forward"]["sent_bytes"]);
    EXPECT_EQ(audit["meshes"][0]["axes"][1],
              (json{{"name", "seq"}, {"size", 4}}));
    program({"audit", file});
    EXPECT_EQ(code_, 0) << err_;
    EXPECT_NE(out_.find("mesh: data=1 seq=4 (4 devices)"), std::string::npos)
        << out_;
    EXPECT_NE(out_.find(audit["fingerprint"].get<std::string>()),
              std::string::npos);
  }
}

TEST_F(AuditCommand, AMissingShardingIsRefused) {
  const testing::TempFolder folder;
  const std::string file = folder.file("jit.mlir");
  auto text = read_file("tests/golden/audit/jit.mlir", 1 << 20);
  ASSERT_TRUE(text) << text.error().message;
  const std::string gone = " {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}";
  const size_t at = text->find(gone);
  ASSERT_NE(at, std::string::npos);
  ASSERT_TRUE(write_file(file, text->erase(at, gone.size())));
  program({"audit", file});
  EXPECT_EQ(code_, 2);
  EXPECT_EQ(err_,
            "tessera: [audit] a parameter must have a sharding, found none for "
            "%arg1 on line 3 (in '" +
                file + "')\n");
  EXPECT_EQ(out_, "");
}

}  // namespace
}  // namespace tessera::cli
