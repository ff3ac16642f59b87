// cli/schedule/command_test.cc: `tessera schedule` from the command line.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/child.h"
#include "base/files.h"
#include "pjrt/locate.h"
#include "tests/plugins.h"
#include "tests/program.h"
#include "tests/random_case.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using tessera::testing::Arguments;

constexpr const char* kProgram = "tests/golden/schedule/triangle.mlir";

class Schedule : public tessera::testing::Program {
 protected:
  Schedule() {
    fs::create_directories(dump());
    const fs::path golden = "tests/golden/schedule";
    fs::copy_file(golden / "triangle-bundles.txt",
                  dump() + "/17-triangle.1-71-final_bundles.txt");
    fs::copy_file(golden / "triangle-slots.txt",
                  dump() +
                      "/17-triangle.1-69-final_hlo-static-per-bundle-"
                      "utilization.txt");
    fs::copy_file(golden / "triangle-packed.txt",
                  dump() + "/17-triangle.1-64-packed-bundles-post-ra.txt");
    // The frame of the program is not a kernel.
    EXPECT_TRUE(write_file(dump() + "/9-TLP-73-final_bundles.txt", "x").ok());
  }
  std::string dump() const { return file("dump"); }

  int schedule(const Arguments& more) { return program({"schedule"}, more); }
  void refused(const Arguments& more, const std::string& what) {
    EXPECT_EQ(schedule(more), 2);
    EXPECT_EQ(out_, "");
    EXPECT_NE(err_.find(what), std::string::npos) << err_;
  }
};

TEST_F(Schedule, PredictsAPlanFromADump) {
  const Arguments plan = {"--dump",  dump(), "--mask",   "causal",
                          "--q-len", "64",   "--kv-len", "512"};
  ASSERT_EQ(schedule(plan), 0) << err_;
  // Queries stand at keys 448 to 511: all 16 blocks of a head are active.
  EXPECT_NE(out_.find("16 active of 16 x 128 a head (12 full, 4 partial), 2 "
                      "heads; 0 of 32 grid steps dead: 0 cycles"),
            std::string::npos)
      << out_;
  Arguments with_json = plan;
  with_json.push_back("--json");
  ASSERT_EQ(schedule(with_json), 0) << err_;
  const json r = json::parse(out_);
  // Bundles plus the stalls of the grid, of a step and of its product.
  const double cycles =
      21 + 34 * (64 + 3) + 32 * (37 + 15) + 8 * 2 + 32 * (27 + 244) + 8 * 3;
  EXPECT_EQ(r["cycles"], cycles);
  EXPECT_EQ(r["attention_cycles"], cycles);
  EXPECT_EQ(r["heads"], 2);
  EXPECT_EQ(r["cycles_per_head"], cycles / 2);
  EXPECT_EQ(r["exact_tiles_per_head"], 2);  // 64 queries, 512 keys
  EXPECT_EQ(r["cycles_per_tile"], cycles / 4);
  const json& kernel = r["kernels"].at(0);
  EXPECT_EQ(kernel["name"], "triangle.1");
  EXPECT_EQ(kernel["grid"], json({2, 4, 4}));
  EXPECT_EQ(kernel["attention"]["grid_steps"], 32);
  ASSERT_EQ(kernel["regions"].size(), 6u);
  const json& compute = kernel["regions"].at(4);
  EXPECT_EQ(compute["path"], "loop0/if0/if1");
  EXPECT_EQ(compute["role"], "compute");
  EXPECT_EQ(compute["trips"], 32);
  EXPECT_EQ(compute["trips_from"], "plan");
  EXPECT_EQ(compute["own"]["bundles"], 27);
  EXPECT_EQ(compute["own"]["stalls"], 244);
  EXPECT_EQ(compute["own"]["bound_slot"], "MATPUSH");
  EXPECT_EQ(compute["own"]["bound"], 12);
}

TEST_F(Schedule, SaysWhenNoKernelFollowsThePlan) {
  ASSERT_EQ(schedule({"--dump", dump(), "--mask", "causal", "--q-len", "64"}),
            0)
      << err_;
  EXPECT_NE(out_.find("plan        no kernel's grid follows it"),
            std::string::npos);
  ASSERT_EQ(schedule({"--dump", dump(), "--mask", "causal", "--q-len", "64",
                      "--heads", "2", "--json"}),
            0);
  const json r = json::parse(out_);
  // One tile of 256 x 256 a head holds all 64 queries and keys.
  EXPECT_EQ(r["cycles_per_tile"].get<double>() * 2, r["cycles"]);
}

TEST_F(Schedule, TakesTrips) {
  ASSERT_EQ(schedule({"--dump", dump(), "--json", "--trips", "grid=10",
                      "--trips", "loop0/if0/if1=3"}),
            0)
      << err_;
  const json r = json::parse(out_);
  EXPECT_EQ(r["cycles"], 21 + 10 * (67 + 52 + 2 + 3) + 3 * (27 + 244));
  EXPECT_EQ(r["cycles_loops_once"], r["cycles"]);
  EXPECT_TRUE(r["cycles_per_tile"].is_null());
}

TEST_F(Schedule, DrawsThePicture) {
  const std::string svg = file("a.svg");
  ASSERT_EQ(schedule({"--dump", dump(), "--picture", svg}), 0) << err_;
  const std::string text = *read_file(svg, 1 << 20);
  EXPECT_TRUE(text.starts_with("<svg "));
  EXPECT_TRUE(text.ends_with("</svg>\n"));
  EXPECT_NE(text.find("the body of loop0: 133 bundles"), std::string::npos);
  // The note of the loop has all uses of a slot.
  EXPECT_NE(text.find(">8 of 266 ("), std::string::npos);
}

TEST_F(Schedule, SaysWhatIsNotCalibrated) {
  for (const auto& [target, calibrated] :
       {std::pair("v6e:1x1", true), std::pair("v5e:2x2", false),
        std::pair("v5p:2x2x1", false), std::pair("tpu7x:2x2x1", true)}) {
    const Arguments asked = {"schedule", "--dump", dump(), "--target", target};
    ASSERT_EQ(program(asked), 0) << err_;
    EXPECT_EQ(out_.find("not calibrated") == out_.npos, calibrated) << out_;
    EXPECT_EQ(out_.find("calibrated  on another kernel's forward passes") !=
                  out_.npos,
              calibrated)
        << out_;
    ASSERT_EQ(program(asked, {"--json"}), 0) << err_;
    const nlohmann::json assumed = nlohmann::json::parse(out_)["assumed"];
    EXPECT_EQ(assumed["calibrated"], calibrated);
    EXPECT_EQ(assumed["calibrated_on"].is_string(), calibrated);
    EXPECT_EQ(assumed["measured_over_predicted"].is_object(), calibrated);
  }
}

TEST_F(Schedule, RefusesBadInputBeforeAnyWork) {
  refused({},
          "schedule must be given a program, --dump or a request, found none");
  refused({kProgram, "--dump", dump()}, "found a program and --dump");
  refused({"--dump", dump(), "--keep", file("k")}, "--keep goes with");
  refused({"--dump", dump(), "--target", "v9:2x2x1"},
          "a target must be of a known chip (v4, v5e, v5p, v6e, tpu7x), found "
          "'v9:2x2x1'");
  refused({"--dump", dump(), "--trips", "grid"}, "--trips must be REGION=N");
  refused({"--dump", dump(), "--trips", "grid=-1"}, "--trips");
  refused({"--dump", dump(), "--trips", "gird=1"},
          "a rule must mean one region (triangle.1:loop0, ");
  refused({"--dump", dump(), "--heads", "0"}, "--heads");
  refused({"--dump", file("none")}, "must be a folder to read");
  refused({"--dump", folder_.path()}, "a dump must hold a kernel's");
  refused(
      {"--dump", dump(), "--mask", "causal", "--q-len", "64", "--batch", "2"},
      "[schedule] beside a program the plan must be of one batch row and one "
      "plan head, found 2 and 1");
  refused(
      {"--dump", dump(), "--mask", "causal", "--mask", "full", "--q-len", "64"},
      "found 1 and 2");
  refused({"--dump", dump(), "--mask", "causal & routed(2, 8)", "--q-len", "64",
           "--picks", "clustered:heads=2"},
          "found 1 and 2");
  refused({file("none.mlir")}, "none.mlir");
  refused({"--dump", dump(), "--picture", file("no/a.svg")}, "a.svg");
  fs::remove(dump() + "/17-triangle.1-71-final_bundles.txt");
  refused({"--dump", dump()}, "a kernel's dump must be three files");
  EXPECT_TRUE(
      write_file(dump() + "/17-triangle.1-71-final_bundles.txt", "x").ok());
  refused({"--dump", dump()}, "key of labels");
}

TEST_F(Schedule, KeepsNoDumpWhereThereIsOne) {
  TESSERA_NEEDS_PLUGINS();
  refused({kProgram, "--keep", dump()},
          "a folder that keeps dumps must be new or empty");
}

// A plugin reads its dump folder once per process, when it loads. So these
// tests run the program in processes of its own.
class ScheduleTpu : public Schedule {
 protected:
  void SetUp() override {
    TESSERA_NEEDS_PLUGINS();
    if (fs::exists(".venv/bin/python")) {
      setenv("TESSERA_PYTHON", ".venv/bin/python", 0);
    }
    const auto plugin = pjrt::find_plugin("libtpu");
    if (tessera::testing::is_absent(plugin)) {
      GTEST_SKIP() << plugin.error().message;
    }
    ASSERT_TRUE(plugin.ok()) << plugin.error().message;
  }

  static ChildRun child(Arguments more, const std::string& scratch) {
    more.insert(more.begin(), {TESSERA_PROGRAM, "schedule"});
    auto ran = run_child(more, {{"TMPDIR", scratch}}, 120);
    EXPECT_TRUE(ran.ok()) << ran.error().message;
    if (ran) tessera::testing::expect_listed("schedule", ran->out);
    return ran.ok() ? std::move(*ran) : ChildRun{};
  }
};

TEST_F(ScheduleTpu, CompilesAndKeepsTheDump) {
  const std::string keep = file("keep");
  const ChildRun ran =
      child({kProgram, "--keep", keep, "--json"}, folder_.path());
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  ASSERT_EQ(schedule({"--dump", keep, "--json"}), 0) << err_;
  EXPECT_EQ(out_, ran.out);
  const json r = json::parse(out_);
  ASSERT_EQ(r["kernels"].size(), 1u);
  const json& kernel = r["kernels"].at(0);
  EXPECT_EQ(kernel["grid"], json({2, 4, 4}));
  // Another version may have another schedule, but not another structure.
  std::vector<std::string> paths;
  for (const json& region : kernel["regions"]) paths.push_back(region["path"]);
  EXPECT_EQ(paths,
            (std::vector<std::string>{"", "loop0", "loop0/if0", "loop0/if0/if0",
                                      "loop0/if0/if1", "loop0/if0/if2"}));
  EXPECT_GT(kernel["regions"].at(4)["own"]["slots"]["MATMUL"]["used"], 0);
}

// The trips of each named region of the first kernel. In 8 x 8 tiles a head has
// 8 key tiles and 36 active tiles, 8 of them partial. The kernel walks the key
// tiles once and the queries twice; the heads run in two groups of four.
std::map<std::string, double> trips_of(const json& report) {
  std::map<std::string, double> trips;
  for (const json& region : report["kernels"].at(0)["regions"]) {
    const std::string name = region["name"];
    if (!name.empty()) trips[name] = region["trips"];
  }
  return trips;
}

TEST_F(ScheduleTpu, CountsTheBackwardKernel) {
  const Arguments asked = {"--mask",     "causal",  "--q-len",          "4096",
                           "--heads",    "8",       "--kv-heads",       "4",
                           "--tile",     "512x512", "--tiles-per-pass", "1",
                           "--backward", "--json"};
  const std::string keep = file("keep");
  Arguments compiled = asked;
  compiled.insert(compiled.end(), {"--keep", keep});
  const ChildRun ran = child(compiled, folder_.path());
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  Arguments read = asked;
  read.insert(read.end(), {"--dump", keep});
  ASSERT_EQ(schedule(read), 0) << err_;
  EXPECT_EQ(out_, ran.out);
  const json r = json::parse(ran.out);
  EXPECT_EQ(r["own"]["chosen_by"], "the request");
  auto trips = trips_of(r);
  const std::map<std::string, double> due = {
      {"first_rows", 2},     {"prepare", 16},   {"column", 16},
      {"pass", 72},          {"full", 56},      {"partial", 16},
      {"finish_column", 16}, {"finish_row", 16}};
  for (const auto& [name, count] : due) EXPECT_EQ(trips[name], count) << name;
  EXPECT_GT(r["cycles"], 0);
}

// Two batch rows; half of the heads have all 8 x 8 tiles (64), the others 36.
TEST_F(ScheduleTpu, CountsTheListsOfHeadsAndRows) {
  const ChildRun ran =
      child({"--mask", "causal", "--mask", "full", "--q-len", "4096", "--heads",
             "8", "--kv-heads", "4", "--tile", "512", "--batch", "2",
             "--backward", "--tiles-per-pass", "1", "--json"},
            folder_.path());
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const json r = json::parse(ran.out);
  auto trips = trips_of(r);
  const std::map<std::string, double> due = {
      {"grid", 4},           {"prepare", 32},   {"column", 32},
      {"pass", 200},         {"full", 184},     {"partial", 16},
      {"finish_column", 32}, {"finish_row", 32}};
  for (const auto& [name, count] : due) EXPECT_EQ(trips[name], count) << name;
  EXPECT_EQ(r["heads"], 16);
  EXPECT_EQ(r["exact_tiles_per_head"], (136 + 256) / 2);
  EXPECT_EQ(r["cycles_per_tile"], r["cycles"].get<double>() / 196 / 16);
}

// The vector memory of Tessera's kernel in a dump, by use.
struct VendorMemory {
  std::map<std::string, int64_t> by_tag;
  int64_t total = 0;
};
VendorMemory vendor_memory(const std::string& dump) {
  VendorMemory out;
  for (const fs::directory_entry& e : fs::directory_iterator(dump)) {
    const std::string name = e.path().string();
    if (!name.ends_with("-vmem_report.html")) continue;
    const std::string page = *read_file(name, 1 << 26);
    std::istringstream data(page.substr(page.find('{', page.find("DATA"))));
    json report;
    data >> report;  // more of the page follows
    for (const auto& [call, of] : report["hlo_breakdowns"].items()) {
      if (!call.starts_with("tessera_")) continue;
      EXPECT_EQ(out.total, 0) << call;
      out.total = of["total_size"];
      for (const json& block : of["blocks"]) {
        for (const json& a : block["allocations"]) {
          out.by_tag[a["tag"]] += a["size"].get<int64_t>();
        }
      }
    }
  }
  return out;
}

class ScheduleTpuMemory : public ScheduleTpu {
 protected:
  // Tessera's own figures for a kernel, which is written to kernel.mlir.
  json predicted(Arguments asked) {
    asked.insert(asked.end(),
                 {"--no-compile", "--json", "--emit", file("kernel.mlir")});
    EXPECT_EQ(program({"compile"}, asked), 0) << err_;
    return json::parse(out_)["kernel"]["vector_memory"];
  }
  // The exit code of a compile of that kernel with the vector limit `limit`.
  int compiled_within(int64_t limit, const json& ours) {
    std::string text = *read_file(file("kernel.mlir"), 1 << 26);
    const std::string size = "size\\22: ";
    const size_t at = text.find(size + ours["limit"].dump());
    EXPECT_NE(at, text.npos);
    text.replace(at, (size + ours["limit"].dump()).size(),
                 size + std::to_string(limit));
    EXPECT_TRUE(write_file(file("within.mlir"), text));
    auto ran = run_child({TESSERA_PROGRAM, "compile", file("within.mlir"),
                          "--target", "v6e:1x1"},
                         {}, 120);
    EXPECT_TRUE(ran.ok());
    const bool refused = ran->err.find("memory space vmem") != ran->err.npos;
    EXPECT_EQ(ran->exit_code, refused ? 2 : 0) << ran->err;
    return ran->exit_code;
  }
};

// A kernel's scratch equals the compiler's figure to the byte. The compiler
// adds only spilled registers and, for a kernel of v5e, a little memory of its
// own.
TEST_F(ScheduleTpuMemory, ScratchIsTheVendorsToTheByte) {
  struct Kernel {
    const char* target;
    Arguments asked;
    int64_t of_its_own = 0;  // used by the compiler itself
  };
  const std::vector<Kernel> kernels = {
      {"v6e:1x1",
       {"--mask", "causal & documents", "--q-len", "1024", "--heads", "4",
        "--kv-heads", "2", "--tile", "256", "--backward", "--dlse",
        "--sink-logits"}},
      {"v5p:2x2x1",
       {"--mask", "causal & documents", "--q-len", "384", "--kv-len", "640",
        "--heads", "3", "--kv-heads", "1", "--head-dim", "64", "--v-head-dim",
        "192", "--dtype", "f32", "--tile", "128", "--sink-logits"}},
      {"v4:2x2x1",
       {"--mask", "causal | prefix", "--q-len", "1024", "--heads", "6",
        "--kv-heads", "3", "--head-dim", "64", "--tile", "128", "--backward",
        "--query-chunk", "512", "--sink-logits", "--page-steps", "64"}},
      {"v6e:1x1",
       {"--mask", "causal", "--q-len", "1024", "--heads", "3", "--kv-heads",
        "1", "--tile", "256", "--sink-telemetry"}},
      {"v6e:1x1",
       {"--mask", "causal & documents", "--q-len", "1280", "--kv-len", "768",
        "--heads", "2", "--kv-heads", "1", "--head-dim", "256", "--tile", "256",
        "--page-steps", "8"}},
      {"v6e:1x1",
       {"--mask", "causal & routed(top=2, block=128)", "--picks",
        "clustered:heads=4,kv_heads=2", "--q-len", "1024", "--heads", "4",
        "--kv-heads", "2", "--tile", "256"}},
      {"v5e:2x2",
       {"--mask", "causal & segments", "--q-len", "1000", "--heads", "6",
        "--kv-heads", "2", "--head-dim", "192", "--v-head-dim", "128", "--tile",
        "256", "--softcap", "30", "--numbers", "any"},
       36'864},
      {"tpu7x:2x2x1",
       {"--mask", "window(300, 40) & documents", "--q-len", "1024", "--heads",
        "4", "--kv-heads", "4", "--tile", "256", "--backward", "--dlse"}},
      {"tpu7x:2x2x1",
       {"--mask", "causal", "--q-len", "1024", "--heads", "4", "--kv-heads",
        "4", "--tile", "256", "--tiles-per-pass", "1", "--row-sum",
        "rounded"}}};
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (!testing::takes_case(i, kernels.size())) continue;
    const Kernel& kernel = kernels[i];
    SCOPED_TRACE(::testing::PrintToString(kernel.asked));
    Arguments asked = kernel.asked;
    asked.insert(asked.end(), {"--target", kernel.target});
    const json ours = predicted(asked);
    const std::string keep = file("keep" + std::to_string(i));
    const ChildRun ran = child({file("kernel.mlir"), "--target", kernel.target,
                                "--keep", keep, "--json"},
                               folder_.path());
    ASSERT_EQ(ran.exit_code, 0) << ran.err;
    VendorMemory of = vendor_memory(keep);
    EXPECT_EQ(ours["scratch"], of.by_tag["scratch operand"]);
    EXPECT_EQ(of.total, of.by_tag["scratch operand"] + of.by_tag["SPILL"] +
                            kernel.of_its_own);
    EXPECT_LE(ours["scratch"], ours["room"]);
    EXPECT_LE(of.total, ours["limit"]);
    if (i > 0) continue;
    // The limit applies to the sum of both.
    EXPECT_EQ(compiled_within(of.total, ours), 0);
    EXPECT_EQ(compiled_within(of.total - 1, ours), 2);
  }
}

TEST_F(ScheduleTpu, LeavesNothingBehindAndRefusesWhatTheVendorRefuses) {
  const std::string scratch = file("scratch");
  fs::create_directories(scratch);
  const std::string bad = file("bad.mlir");
  EXPECT_TRUE(write_file(bad, "module {").ok());
  const ChildRun good = child({kProgram}, scratch);
  EXPECT_EQ(good.exit_code, 0) << good.err;
  EXPECT_TRUE(fs::is_empty(scratch));
  const ChildRun refused = child({bad}, scratch);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_EQ(refused.out, "");
  EXPECT_TRUE(refused.err.starts_with("tessera: [")) << refused.err;
  EXPECT_TRUE(fs::is_empty(scratch));
}

}  // namespace
}  // namespace tessera::cli
