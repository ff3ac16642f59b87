// run/choose_test.cc: tests the choice of a lane for every combination of
// requests and machines.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/files.h"
#include "lanes/mosaic/kernel.h"
#include "lanes/mosaic/vector_memory.h"
#include "plan/make_plan.h"
#include "run/rules.h"
#include "tessera/dispatch.h"
#include "tessera/machine.h"
#include "tests/oracle.h"
#include "tests/random_case.h"

namespace tessera::run {
namespace {

struct MaskRow {
  const char* text;
  RequestClass due;
};
constexpr RequestClass kSparse = RequestClass::sparse_blocks;
constexpr RequestClass kCustom = RequestClass::custom;
constexpr RequestClass kPlain = RequestClass::plain_causal;
constexpr RequestClass kOther = RequestClass::other;
constexpr MaskRow kMasks[] = {
    {"full", kOther},
    {"causal", kPlain},
    {"window(15, 0)", kCustom},
    {"causal & window(15, 0)", kCustom},
    {"window(-1, 0)", kCustom},
    {"chunk(16)", kOther},
    {"causal & chunk(16)", kOther},
    {"prefix", kOther},
    {"causal | prefix", kOther},
    {"!causal", kOther},
    {"sink(4)", kOther},
    {"causal & (window(15, 0) | sink(4))", kCustom},
    {"documents", kSparse},
    {"causal & documents", kSparse},
    {"causal & window(15, 0) & documents", kSparse},
    {"segments", kSparse},
    {"causal & segments", kSparse},
    {"full | documents", kSparse},  // its veto stays
    {"tree", kSparse},
    {"causal | same(a)", kSparse},
    {"tree & documents", kSparse},
    {"blocks(16)", kSparse},
    {"causal & blocks(16)", kSparse},
    {"routed(2, 16)", kSparse},
    {"causal & (blocks(16) | window(15, 0))", kSparse},
};

struct MachineRow {
  const char* name;
  Machine machine;
  const char* device;      // what runs programs beside the cores
  const char* run_plugin;  // of the xla lane; "" none
};

std::vector<MachineRow> machines() {
  const std::vector<Isa> isas = {Isa::portable, Isa::avx2};
  const MachinePlugin cpu = {"xla_cpu_pjrt", "cpu", 4};
  const MachinePlugin tpu = {"libtpu", "tpu", 4};
  const MachinePlugin compiler = {"libtpu", "tpu", 0};
  const MachinePlugin gpu = {"/opt/cuda.so", "cuda", 1};
  const MachinePlugin metal = {"/opt/metal.so", "metal", 1};
  const auto with = [&](std::vector<MachinePlugin> plugins) {
    return Machine{"A CPU", 8, isas, true, true, std::move(plugins)};
  };
  std::vector<MachineRow> out = {
      {"a CPU", with({}), "cpu", ""},
      {"a CPU with a plugin", with({cpu}), "cpu", "xla_cpu_pjrt"},
      {"a CPU with libtpu", with({compiler}), "cpu", ""},
      {"a CPU with both", with({compiler, cpu}), "cpu", "xla_cpu_pjrt"},
      {"a TPU", with({tpu}), "tpu", "libtpu"},
      {"a TPU and a plugin", with({cpu, tpu}), "tpu", "libtpu"},
      {"a GPU", with({gpu}), "cuda", "/opt/cuda.so"},
      {"a GPU, libtpu", with({compiler, cpu, gpu}), "cuda", "/opt/cuda.so"},
      {"another device", with({cpu, metal}), "metal", "/opt/metal.so"},
  };
  Machine no_header = with({});
  no_header.loads_plugins = false;
  out.push_back({"a build without plugins", no_header, "cpu", ""});
  Machine not_asked = with({});
  not_asked.asked_plugins = false;
  out.push_back({"plugins not asked", not_asked, "cpu", ""});
  Machine no_isa = with({cpu});
  no_isa.isas.clear();
  out.push_back({"a CPU of no known ISA", no_isa, "cpu", "xla_cpu_pjrt"});
  return out;
}

RequestFeatures features(const char* mask, const AttentionShape& shape,
                         const CallFeatures& call, int64_t tokens = 4096) {
  Request request;
  request.masks = {*parse_mask(mask)};
  request.q_len = request.kv_len = tokens;
  return features_of(request, {}, shape, call);
}

const Rejected* find(const Choice& choice, LaneId lane) {
  for (const Rejected& r : choice.rejected) {
    if (r.lane == lane) return &r;
  }
  return nullptr;
}

struct Lengths {
  int64_t q = 0, kv = 0;
  int64_t tokens() const { return std::max(q, kv); }
};

// A length as programs round it: 2^k or 1.5 x 2^k, in whole tiles of 256.
int64_t rounded(int64_t n) {
  int64_t up = 1;
  while (up < n && (up < 2 || up + up / 2 < n)) up *= 2;
  if (up < n) up += up / 2;
  while (up % 256 != 0) ++up;
  return up;
}

// The rules, written again independently: tiles are 256 x 256, and `share` of
// them are active.
struct Due {
  std::optional<LaneId> lane;
  XlaMethod method = XlaMethod::worklist;
  std::string rule = {};
};
Due xla_due(RequestClass c, const std::string& device, bool backward,
            const Lengths& lengths, double share) {
  const int64_t tokens = lengths.tokens();
  if (c == kPlain) {
    const Due any = xla_due(kOther, device, backward, lengths, share);
    if (tokens <= 1024) {
      return any.method == XlaMethod::worklist
                 ? any
                 : Due{LaneId::xla, XlaMethod::dense, "plain causal"};
    }
    const bool small = rounded(lengths.q) * 256 <= 1024 * 1024;
    if (share >= 1 && small) return any;
    return {LaneId::xla, XlaMethod::worklist, "plain causal"};
  }
  const int64_t counted = share >= 1 ? lengths.q : tokens;
  const bool tpu = device == "tpu", far = counted > 6144;
  const std::string rule =
      !tpu ? "worklist"
           : std::string(far ? "tpu worklist, long, " : "tpu worklist, ") +
                 (backward ? "backward" : "forward");
  const double all_too = 2;
  const double most = !tpu       ? 0.67
                      : far      ? (backward ? 1 : all_too)
                      : backward ? 0.61
                                 : 0.62;
  const int64_t beyond = !tpu ? 1024 : backward ? 512 : 256;
  if (counted > beyond && share < most) {
    return {LaneId::xla, XlaMethod::worklist, rule};
  }
  if (tokens <= 1024) {
    return {LaneId::xla, XlaMethod::dense, "dense, few tokens"};
  }
  return {LaneId::xla, XlaMethod::chunked, rule};
}
Due due_of(const MaskRow& mask, const AttentionShape& shape,
           const CallFeatures& call, const MachineRow& on,
           const Lengths& lengths, double share) {
  RequestClass c = mask.due;
  if (shape.softcap != 0 && c != kSparse) c = kCustom;
  const std::string device = on.device;
  const bool dims = shape.head_dim % 8 == 0 && shape.head_dim <= 256;
  const bool native = dims && !on.machine.isas.empty();
  const bool compiler = dims && std::string(on.run_plugin) != "";
  const bool kernel =
      call.dtype != Dtype::f16 && dims && shape.head_dim % 64 == 0;
  if (call.compile_only) {
    bool tpu = false;
    for (const MachinePlugin& p : on.machine.plugins)
      tpu |= p.platform == "tpu";
    return tpu && kernel ? Due{LaneId::mosaic} : Due{};
  }
  if (device == "tpu" && kernel && c != kPlain && lengths.tokens() > 256 &&
      share < 1) {
    return {LaneId::mosaic, {}, "tpu kernels"};
  }
  if (device == "cpu" && native) return {LaneId::cpu, {}, "cpu kernels"};
  if (compiler) {
    return xla_due(c, device, call.backward, lengths, share);
  }
  return native ? Due{LaneId::cpu, {}, "cpu last"} : Due{};
}

// Compares all fields of a choice with what is due.
void expect_due(const Result<Choice>& choice, const Due& due,
                const RequestFeatures& f, const MachineRow& on,
                const std::string& what) {
  ASSERT_EQ(choice.ok(), due.lane.has_value())
      << what << ": " << (choice ? choice->reason : choice.error().message);
  if (!choice) {
    EXPECT_EQ(choice.error().kind, ErrorKind::unavailable);
    // Each lane is named with what it lacks.
    for (const LaneFacts& lane : lane_registry()) {
      EXPECT_NE(
          choice.error().message.find(std::string(to_string(lane.lane)) + ": "),
          std::string::npos)
          << choice.error().message;
    }
    return;
  }
  EXPECT_EQ(choice->lane, *due.lane) << what;
  EXPECT_EQ(choice->rule ? choice->rule->name : "", due.rule) << what;
  if (choice->lane == LaneId::xla) {
    EXPECT_EQ(choice->method, due.method) << what;
    EXPECT_EQ(choice->plugin, on.run_plugin) << what;
  }
  EXPECT_FALSE(choice->reason.empty());
  EXPECT_EQ(choice->rejected.size(), lane_registry().size() - 1);
  for (const LaneFacts& lane : lane_registry()) {
    if (lane.lane == choice->lane) continue;
    const Rejected* r = find(*choice, lane.lane);
    ASSERT_NE(r, nullptr) << what;
    EXPECT_FALSE(r->reason.empty()) << what;
    const auto why = why_not(lane.lane, f, on.machine);
    if (why) {
      EXPECT_EQ(r->reason, *why);
    }
  }
  EXPECT_FALSE(why_not(choice->lane, f, on.machine)) << what;
}

TEST(Choose, EveryCombination) {
  size_t chosen = 0, none = 0, number = 0;
  const size_t stride = testing::case_stride();
  for (const MachineRow& on : machines()) {
    for (const MaskRow& mask : kMasks) {
      for (int bits = 0; bits < 1 << 5; ++bits) {
        if (!testing::takes_case(number++)) continue;
        for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
          for (const int64_t dim : {128, 64, 96, 12, 264, 320}) {
            const AttentionShape shape = {
                8, 8, dim, dim, {}, (bits & 1) != 0 ? 30.0 : 0.0};
            const CallFeatures call = {dtype, (bits & 2) != 0, (bits & 4) != 0,
                                       (bits & 8) != 0, false};
            const int64_t tokens = (bits & 16) != 0 ? 512 : 4096;
            const RequestFeatures f = features(mask.text, shape, call, tokens);
            const std::string what = std::string(on.name) + ", " + mask.text +
                                     ", bits " + std::to_string(bits) +
                                     ", dim " + std::to_string(dim);
            const auto choice = choose(f, {100, 50}, on.machine);
            ++(choice ? chosen : none);
            expect_due(choice,
                       due_of(mask, shape, call, on, {tokens, tokens}, 0.5), f,
                       on, what);
          }
        }
      }
    }
  }
  EXPECT_GT(chosen * stride, 10000u);
  EXPECT_GT(none * stride, 10000u);
}

// Every class on every machine at both sides of each threshold. A plan that
// skips enough by the table runs its list, whatever its mask is.
TEST(Choose, EveryDensity) {
  size_t worklists = 0, plain = 0, number = 0;
  const size_t stride = testing::case_stride();
  const AttentionShape shape = {8, 8, 128, 128, {}, 0};
  const auto judge = [&](const MachineRow& on, const MaskRow& mask,
                         const CallFeatures& call, int64_t tokens,
                         int64_t active) {
    const RequestFeatures f = features(mask.text, shape, call, tokens);
    const double share = static_cast<double>(active) / 100;
    const std::string what =
        fmt::format("{}, {}, {} tokens, {}, {}", on.name, mask.text, tokens,
                    active, call.backward ? "backward" : "forward");
    const auto choice = choose(f, {100, active}, on.machine);
    expect_due(choice, due_of(mask, shape, call, on, {tokens, tokens}, share),
               f, on, what);
    if (!choice) return;
    const bool whole =
        choice->lane == LaneId::xla && choice->method != XlaMethod::worklist;
    ++(whole ? plain : worklists);
    // No class visits all tiles at a density below all rows of the table.
    const double least = mask.due == kPlain ? 1 : 0.61;
    if (tokens > 1024 && share < least) {
      EXPECT_FALSE(whole) << what;
    }
  };
  for (const MachineRow& on : machines()) {
    for (const MaskRow& mask : kMasks) {
      for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
        for (const int64_t tokens :
             {200, 256, 257, 512, 513, 1024, 1025, 4096, 6144, 6145}) {
          if (!testing::takes_case(number++)) continue;
          for (const int64_t active : {100, 99, 67, 66, 62, 61, 60, 30, 1, 0}) {
            for (const bool backward : {false, true}) {
              judge(on, mask, {dtype, false, backward}, tokens, active);
            }
          }
        }
      }
    }
  }
  EXPECT_GT(worklists * stride, 5000u);
  EXPECT_GT(plain * stride, 1000u);
}

const DispatchRule& rule_called(std::string_view name) {
  for (const DispatchRule& rule : dispatch_rules()) {
    if (rule.name == name) return rule;
  }
  ADD_FAILURE() << name;
  return dispatch_rules()[0];
}

nlohmann::json json_of(std::string_view file) {
  const auto text = read_file(std::string(file), 1 << 24);
  EXPECT_TRUE(text.ok()) << file;
  return nlohmann::json::parse(text.ok() ? *text : "{}");
}

// Predicted cycles on v6e for so many causal tokens: of the forward pass, or of
// both passes, which run by one method.
struct Cycles {
  double fixed = 0, tile = 0;  // of the worklist
  double kernel = 0;
  std::optional<double> dense, chunked;

  double worklist(double tiles) const { return fixed + tile * tiles; }
};
using CyclesByTokens = std::map<int64_t, Cycles>;

constexpr int64_t kXlaTile = 256;
double tile_rows(int64_t tokens) {
  return static_cast<double>(tokens / kXlaTile);
}

CyclesByTokens cycles_of(const nlohmann::json& predicted,
                         std::string_view direction) {
  CyclesByTokens out;
  std::map<int64_t, int> passes;
  for (const nlohmann::json& row : predicted["rows"]) {
    if (direction == "forward" && row["direction"] != "forward") continue;
    const int64_t tokens = row["tokens"];
    ++passes[tokens];
    Cycles& c = out[tokens];
    c.fixed += row["worklist"]["fixed"].get<double>();
    c.tile += row["worklist"]["tile"].get<double>();
    c.kernel += row["kernel_causal"].get<double>();
    const auto add = [&](const char* name, std::optional<double>& to) {
      if (!row.contains(name)) return;
      to = to.value_or(0) + row[name].get<double>();
    };
    add("dense", c.dense);
    add("chunked", c.chunked);
  }
  for (const auto& [tokens, n] : passes) {
    EXPECT_EQ(n, direction == "forward" ? 1 : 2) << tokens;
  }
  return out;
}

// Cycles of the program that a worklist is compared with.
double plain_cycles(int64_t tokens, const Cycles& c) {
  const bool few = tokens <= rule_called("dense, few tokens").up_to_tokens;
  return few ? c.dense.value() : c.chunked.value();
}

// The share of tiles at which the worklist costs as much as plain_cycles().
double ties_at(int64_t tokens, const Cycles& c) {
  const double all = tile_rows(tokens) * tile_rows(tokens);
  return (plain_cycles(tokens, c) - c.fixed) / (all * c.tile);
}

bool says(const DispatchRule& rule, const std::string& words) {
  return rule.source.find(words) != std::string_view::npos;
}

// plain_cycles() over the cycles of a worklist of all tiles.
double whole_lead(int64_t tokens, const Cycles& c) {
  const double side = tile_rows(tokens);
  return plain_cycles(tokens, c) / c.worklist(side * side);
}

// Checks a row of xla's worklist on TPUs. Its share, in hundredths, is the
// least at which the worklist ties at the predicted lengths of the row; it has
// no share if the worklist leads by the error bar even over all tiles. At
// shorter lengths the worklist ties at a lower share.
void judge_worklist(const DispatchRule& rule, const CyclesByTokens& cycles,
                    double lead) {
  int64_t until = std::numeric_limits<int64_t>::max();
  for (const DispatchRule& other : dispatch_rules()) {
    if (other.lane == rule.lane && other.platform == rule.platform &&
        other.direction == rule.direction &&
        other.beyond_tokens > rule.beyond_tokens) {
      until = other.beyond_tokens;
    }
  }
  double least = std::numeric_limits<double>::max(), least_lead = least;
  for (const auto& [tokens, c] : cycles) {
    const double tie = ties_at(tokens, c);
    if (tokens > rule.beyond_tokens && tokens <= until) {
      least = std::min(least, tie);
      least_lead = std::min(least_lead, whole_lead(tokens, c));
    } else if (tokens <= rule.beyond_tokens && tile_rows(tokens) > 1) {
      EXPECT_LT(tie, rule.below_density.value_or(1))
          << rule.name << ", " << tokens;
    }
  }
  EXPECT_EQ(least_lead >= lead, !rule.below_density) << rule.name;
  if (!rule.below_density) return;
  EXPECT_LE(*rule.below_density, least) << rule.name;
  EXPECT_GT(*rule.below_density, std::min(least, 1.0) - 0.01) << rule.name;
}

TEST(Choose, ThresholdsAreThoseOfTheirSources) {
  std::set<std::string_view> names;
  for (const DispatchRule& rule : dispatch_rules()) {
    EXPECT_TRUE(names.insert(rule.name).second) << rule.name;
    EXPECT_FALSE(rule.source.empty()) << rule.name;
  }
  // The figures are predicted: a lead below this is a tie.
  const double lead =
      json_of("bench/results/v6e/kernel.json")["lead_error"].get<double>();
  const DispatchRule& causal = rule_called("plain causal");
  const DispatchRule& kernels = rule_called("tpu kernels");
  const DispatchRule& few = rule_called("dense, few tokens");
  const nlohmann::json predicted = json_of("bench/results/v6e/dispatch.json");
  int rows = 0;
  for (const DispatchRule& rule : dispatch_rules()) {
    if (rule.platform != "tpu" || rule.lane != LaneId::xla) continue;
    ++rows;
    judge_worklist(rule, cycles_of(predicted, rule.direction), lead);
  }
  EXPECT_EQ(rows, 4);
  for (const std::string direction : {"forward", "backward"}) {
    SCOPED_TRACE(direction);
    const CyclesByTokens cycles = cycles_of(predicted, direction);
    EXPECT_GE(cycles.size(), 6u);
    for (const auto& [tokens, c] : cycles) {
      SCOPED_TRACE(tokens);
      const double plain = plain_cycles(tokens, c);
      // One tile has nothing to skip.
      EXPECT_EQ(tokens > kernels.beyond_tokens,
                plain / c.kernel >= lead && tile_rows(tokens) > 1);
      if (!c.dense) continue;
      const double side = tile_rows(tokens);
      const double list = c.worklist(side * (side + 1) / 2);
      if (tokens <= causal.beyond_tokens) {
        EXPECT_LT(*c.dense, lead * list);
      }
      if (!c.chunked) continue;
      if (tokens <= few.up_to_tokens) {
        EXPECT_LT(*c.dense, *c.chunked);
      } else {
        EXPECT_LT(*c.chunked, lead * *c.dense);
      }
    }
    // The figures are those that the sources quote.
    const Cycles& least = cycles.at(512);
    EXPECT_TRUE(says(
        kernels,
        fmt::format("{:.2f} times", plain_cycles(512, least) / least.kernel)));
    const Cycles& at_most = cycles.at(few.up_to_tokens);
    EXPECT_TRUE(says(
        few, fmt::format("{:.2f} times", *at_most.chunked / *at_most.dense)));
    const Cycles& longest = cycles.at(8192);
    EXPECT_TRUE(says(rule_called("tpu worklist, long, " + direction),
                     fmt::format("{:.2f} times", whole_lead(8192, longest))));
  }
  EXPECT_TRUE(says(
      rule_called("tpu worklist, backward"),
      fmt::format("at {:.2f}",
                  ties_at(512, cycles_of(predicted, "backward").at(512)))));
  const Cycles twice = cycles_of(predicted, "forward").at(2048);
  const double dense_behind = *twice.dense / twice.worklist(36);
  EXPECT_GT(dense_behind, lead);
  EXPECT_TRUE(says(causal, fmt::format("{:.1f} times", dense_behind)));
  // The dense program has one limit, for plain causal and all other masks.
  EXPECT_EQ(few.up_to_tokens, causal.beyond_tokens);
  EXPECT_EQ(rule_called("worklist").beyond_tokens, causal.beyond_tokens);
  // Measured: at this share of the tiles worklist and chunked tie.
  double tie = 1;
  const nlohmann::json on_cpu = json_of("bench/results/amd-epyc/xla.json");
  for (const nlohmann::json& table : on_cpu["tables"]) {
    double worklist = 0, chunked = 0;
    for (const nlohmann::json& row : table["rows"]) {
      if (row["name"] == "xla worklist") worklist = row["median_ms"];
      if (row["name"] == "xla chunked") chunked = row["median_ms"];
    }
    const double share = table["tile_density"];
    tie = std::min(tie, share * chunked / worklist);
  }
  EXPECT_NEAR(*rule_called("worklist").below_density, tie, 0.01);
}

// Real plans of masks of all kinds.
TEST(Choose, RealPlansGoByWhatTheySkip) {
  const std::vector<MachineRow> all = machines();
  const AttentionShape shape = {8, 8, 128, 128, {}, 0};
  const auto pick = [&](const char* mask, const char* machine, Dtype dtype,
                        int64_t due_active, bool backward = false) {
    Request request;
    request.masks = {*parse_mask(mask)};
    request.q_len = request.kv_len = 8192;
    request.tile = {256, 256};
    const std::vector<int32_t> ids(8192, 0);
    Facts facts;
    if (std::string(mask).find("documents") != std::string::npos) {
      facts.doc_ids = ids;
    }
    const auto plan = plan::make_plan(request, facts);
    EXPECT_TRUE(plan.ok()) << plan.error().message;
    const PlanFacts of = plan_facts(*plan);
    EXPECT_EQ(of.tiles, 1024);
    EXPECT_EQ(of.active, due_active) << mask;
    for (const MachineRow& row : all) {
      if (std::string(row.name) != machine) continue;
      const auto c = choose(features_of(request, facts, shape,
                                        {.dtype = dtype, .backward = backward}),
                            of, row.machine);
      EXPECT_TRUE(c.ok()) << c.error().message;
      return std::string(to_string(c->lane)) + " " +
             std::string(c->lane == LaneId::xla ? to_string(c->method) : "");
    }
    return std::string("no such machine");
  };
  for (const char* machine : {"a TPU", "a GPU", "another device"}) {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
      const bool kernel =
          std::string(machine) == "a TPU" && dtype != Dtype::f16;
      const char* const by_tile = kernel ? "mosaic " : "xla worklist";
      EXPECT_EQ(pick("causal & chunk(1024)", machine, dtype, 80), by_tile);
      EXPECT_EQ(pick("causal & sink(4)", machine, dtype, 32), by_tile);
      EXPECT_EQ(pick("causal", machine, dtype, 528), "xla worklist");
      // Nothing is skipped. On a TPU chunked is behind the worklist forward,
      // and ties with it if there are gradients.
      const bool tpu = std::string(machine) == "a TPU";
      for (const char* whole : {"full | documents", "full"}) {
        EXPECT_EQ(pick(whole, machine, dtype, 1024),
                  tpu ? "xla worklist" : "xla chunked");
        EXPECT_EQ(pick(whole, machine, dtype, 1024, true), "xla chunked");
      }
    }
  }
  EXPECT_EQ(pick("causal & window(1023, 0)", "a TPU", Dtype::bf16, 150),
            "mosaic ");
  // A window of the whole length skips nothing.
  EXPECT_EQ(pick("window(8191, 8191)", "a TPU", Dtype::bf16, 1024),
            "xla worklist");
  EXPECT_EQ(pick("causal & chunk(1024)", "a CPU with a plugin", Dtype::f32, 80),
            "cpu ");
}

// The rules, one by one.
TEST(Choose, FollowsTheRules) {
  const AttentionShape shape = {8, 8, 128, 128, {}, 0};
  AttentionShape capped = shape;
  capped.softcap = 30;
  const std::vector<MachineRow> all = machines();
  const auto on = [&](const char* name) {
    for (const MachineRow& row : all) {
      if (std::string(row.name) == name) return row.machine;
    }
    return Machine{};
  };
  const auto pick = [&](const char* mask, const AttentionShape& s,
                        const char* machine) {
    const auto c = choose(features(mask, s, {}), {64, 40}, on(machine));
    return c ? std::string(to_string(c->lane)) + " " +
                   std::string(c->lane == LaneId::xla ? to_string(c->method)
                                                      : "")
             : c.error().message;
  };
  // Plain causal goes to the stable path; on a CPU that is the cpu lane.
  EXPECT_EQ(pick("causal", shape, "a TPU"), "xla worklist");
  EXPECT_EQ(pick("causal", shape, "a GPU"), "xla worklist");
  EXPECT_EQ(pick("causal", shape, "a CPU with a plugin"), "cpu ");
  // Other masks go by how much the plan skips.
  for (const char* mask : {"causal & window(99, 0)", "causal & documents",
                           "causal & blocks(64)", "causal | prefix"}) {
    EXPECT_EQ(pick(mask, shape, "a TPU"), "mosaic ") << mask;
    EXPECT_EQ(pick(mask, shape, "a GPU"), "xla worklist") << mask;
    EXPECT_EQ(pick(mask, shape, "a CPU with a plugin"), "cpu ") << mask;
  }
  EXPECT_EQ(pick("causal", capped, "a GPU"), "xla worklist");
  // libtpu without a TPU runs nothing.
  const auto c = choose(features("causal & documents", shape, {Dtype::bf16}),
                        {64, 40}, on("a TPU"));
  EXPECT_EQ(c->lane, LaneId::mosaic);
  AttentionShape far = shape;
  far.softcap = 1e7;
  for (const AttentionShape& s : {capped, far}) {
    const auto found = choose(features("causal & documents", s, {Dtype::bf16}),
                              {64, 40}, on("a TPU"));
    EXPECT_EQ(found->lane, s.softcap == 30 ? LaneId::mosaic : LaneId::xla);
    if (s.softcap == 30) continue;
    EXPECT_EQ(find(*found, LaneId::mosaic)->reason,
              "its softcap is 0 or from 1e-30 to 1000000, not 10000000");
  }
  far.softcap = -1;
  const auto none = choose(features("causal & documents", far, {Dtype::bf16}),
                           {64, 40}, on("a TPU"));
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("its softcap 0 or more, not "),
            std::string::npos)
      << none.error().message;
  EXPECT_EQ(c->reason,
            "40 of 64 tiles are active, and 4096 tokens are beyond 256: on tpu "
            "the mosaic lane, which visits these alone; predicted, known of "
            "another kernel's forward passes without documents or softcap; "
            "the threshold is borrowed from v6e, applied to a TPU whose "
            "generation is not known");
  const auto alone =
      choose(features("causal & documents", shape, {Dtype::bf16}), {64, 40},
             on("a CPU with libtpu"));
  EXPECT_EQ(alone->lane, LaneId::cpu);
  EXPECT_EQ(find(*alone, LaneId::mosaic)->reason,
            "libtpu has no device here: it compiles and does not run");
  EXPECT_EQ(find(*c, LaneId::xla)->reason, "it could, but mosaic comes first");
  EXPECT_EQ(find(*c, LaneId::cuda)->reason, "this version has no cuda lane");
  EXPECT_EQ(find(*c, LaneId::reference)->reason,
            "it runs only where it is asked for by name");
  EXPECT_EQ(find(*c, LaneId::cpu)->reason, "it could, but mosaic comes first");
}

int64_t least_of_any(RequestFeatures f) {
  f.call.numbers = Numbers::any;
  return mosaic::least_vector_bytes(f);
}

// If dQ of a head does not fit vector memory, queries are taken in chunks.
TEST(Choose, ABackwardBeyondVectorMemoryIsTheKernelsToo) {
  const Machine tpu{"A CPU", 8, {}, true, true, {{"libtpu", "tpu", 4}}};
  constexpr int64_t kRoom = 80 << 20;
  int64_t whole = 0, in_chunks = 0;
  for (const Dtype dtype : {Dtype::bf16, Dtype::f32}) {
    for (const int64_t dim : {64, 128, 192, 256}) {
      for (const int64_t kv_heads : {2, 8}) {
        for (const int64_t tokens : {1 << 14, 1 << 17, 1 << 20, 1 << 22}) {
          Request request;
          request.masks = {*parse_mask("causal & window(999, 0)")};
          request.q_len = request.kv_len = tokens;
          request.tile = {512, 512};
          request.ceilings.max_steps = 20000;
          AttentionCall call;
          call.shape = {8, kv_heads, dim, dim, {}, 0};
          call.dtype = dtype;
          call.backward = true;
          RequestFeatures f = features_of(request, {}, call.shape,
                                          {.dtype = dtype, .backward = true});
          for (const Numbers numbers : {Numbers::finite, Numbers::any}) {
            MosaicOptions options = {1, 1};
            options.numbers = f.call.numbers = numbers;
            const auto kernel =
                mosaic::plan_kernel(request, {}, call, "v6e", options);
            ASSERT_TRUE(kernel.ok()) << kernel.error().message;
            const int64_t least = mosaic::least_vector_bytes(f);
            EXPECT_LE(least, kRoom);
            EXPECT_LE(least, kernel->kernel.vector_bytes);
            if (numbers == Numbers::finite) {
              EXPECT_LT(least, least_of_any(f));
              continue;
            }
            (kernel->kernel.query_chunk > 0 ? in_chunks : whole) += 1;
          }
          const auto c = choose(f, {64, 4}, tpu);
          ASSERT_TRUE(c.ok()) << c.error().message;
          EXPECT_EQ(c->lane, LaneId::mosaic);
        }
      }
    }
  }
  EXPECT_GT(whole, 15);
  EXPECT_GT(in_chunks, 30);
}

// A JAX artifact that the caller gave is the stable kernel of plain causal.
TEST(Choose, ABridgeNeedsItsArtifact) {
  Machine tpu{"A CPU", 8, {Isa::portable}, true, true, {{"libtpu", "tpu", 4}}};
  const AttentionShape odd = {8, 8, 100, 100, {}, 0};  // not for our programs
  CallFeatures call;
  auto c = choose(features("causal", odd, call), {1, 1}, tpu);
  ASSERT_FALSE(c.ok());
  EXPECT_NE(c.error().message.find("jax_bridge: it needs an artifact"),
            std::string::npos);
  call.bridge_artifact = true;
  call.artifact_platforms = {"cuda", "tpu"};
  c = choose(features("causal", odd, call), {1, 1}, tpu);
  ASSERT_TRUE(c.ok()) << c.error().message;
  EXPECT_EQ(c->lane, LaneId::jax_bridge);
  // The artifact also comes before xla, but only for plain causal.
  const AttentionShape even = {8, 8, 128, 128, {}, 0};
  c = choose(features("causal", even, call), {1, 1}, tpu);
  EXPECT_EQ(c->lane, LaneId::jax_bridge);
  c = choose(features("full", even, call), {1, 1}, tpu);
  EXPECT_EQ(c->lane, LaneId::xla);
}

// Gives the request a Splash kernel of its own sizes, for any platform.
const std::vector<std::string> kEverywhere = {"cpu", "tpu", "cuda", "metal"};
void give_splash(RequestFeatures& f) {
  BridgeSplash& out = f.call.splash.emplace();
  f.call.artifact_platforms = kEverywhere;
  out.dtype = f.call.dtype;
  out.shape = f.shape;
  out.q_len = f.q_len;
  out.kv_len = f.kv_len;
  out.block_q = f.tile.q;
  out.block_kv = f.tile.kv;
  out.width = out.blocks = 64;
}

// No artifact, JAX's attention, Splash's kernel, and Splash's kernel of other
// sizes: on every machine, for every class and every kind of call.
TEST(Choose, EveryArtifact) {
  std::map<LaneId, int> stable;
  for (const MachineRow& on : machines()) {
    for (const MaskRow& mask : kMasks) {
      for (int bits = 0; bits < 1 << 4; ++bits) {
        for (const int artifact : {0, 1, 2, 3}) {
          const AttentionShape shape = {
              8, 8, 128, 128, 0.125, (bits & 1) != 0 ? 30.0 : 0.0};
          CallFeatures call = {Dtype::bf16, (bits & 2) != 0, (bits & 4) != 0,
                               (bits & 8) != 0, artifact == 1};
          call.artifact_platforms = kEverywhere;
          const int64_t tokens = artifact % 2 == 0 ? 4096 : 512;
          RequestFeatures f = features(mask.text, shape, call, tokens);
          if (artifact >= 2) give_splash(f);
          if (artifact == 3) f.call.splash->block_kv *= 2;
          Due due = due_of(mask, shape, call, on, {tokens, tokens}, 0.5);
          const bool device = std::string(on.device) != "cpu";
          const bool plain = mask.due == kPlain && shape.softcap == 0;
          if (device && plain && !call.backward && !call.compile_only) {
            if (artifact == 1) {
              due = {LaneId::jax_bridge, {}, "artifact given"};
            }
            if (artifact == 2 && !call.sink_logits) {
              due = {LaneId::splash, {}, "splash given"};
            }
          }
          const std::string what = std::string(on.name) + ", " + mask.text +
                                   ", bits " + std::to_string(bits) +
                                   ", artifact " + std::to_string(artifact);
          const auto choice = choose(f, {100, 50}, on.machine);
          expect_due(choice, due, f, on, what);
          if (choice && plain && device) {
            ++stable[choice->lane];
            EXPECT_FALSE(choice->lane == LaneId::xla &&
                         choice->method == XlaMethod::chunked)
                << what;
          }
          // By name it runs for every mask if it can.
          const bool can = artifact == 2 && !call.backward &&
                           !call.sink_logits && !call.compile_only &&
                           std::string(on.run_plugin) != "";
          EXPECT_EQ(choose(f, {100, 50}, on.machine, {}, LaneId::splash).ok(),
                    can)
              << what;
        }
      }
    }
  }
  for (const LaneId lane : {LaneId::xla, LaneId::jax_bridge, LaneId::splash}) {
    EXPECT_GE(stable[lane], 5) << to_string(lane);
  }
}

// Each way in which Splash's kernel may not fit the request has its reason.
TEST(Choose, ASplashKernelIsForItsSizes) {
  const Machine tpu{"A CPU", 8,    {Isa::portable},
                    true,    true, {{"libtpu", "tpu", 4}}};
  const AttentionShape shape = {8, 2, 128, 64, 0.25, 0};
  const auto told = [&](const std::function<void(BridgeSplash&)>& change,
                        const char* mask = "causal") {
    RequestFeatures f = features(mask, shape, {Dtype::bf16});
    give_splash(f);
    change(*f.call.splash);
    const auto c = choose(f, {64, 36}, tpu);
    EXPECT_TRUE(c.ok()) << c.error().message;
    const Rejected* r = find(*c, LaneId::splash);
    return r ? r->reason : std::string(to_string(c->lane));
  };
  const auto same = [](BridgeSplash&) {};
  EXPECT_EQ(told(same), "splash");
  RequestFeatures given = features("causal", shape, {Dtype::bf16});
  give_splash(given);
  EXPECT_EQ(
      choose(given, {64, 36}, tpu, {}, LaneId::jax_bridge).error().message,
      "[dispatch] the lane that was asked for must be able to run this, "
      "found jax_bridge: its artifact is Splash's kernel, a lane of its own");
  EXPECT_EQ(told(same, "causal & documents"),
            "an artifact runs where it is asked for by name");
  EXPECT_EQ(told([](BridgeSplash& s) { s.dtype = Dtype::f32; }),
            "its artifact has dtype f32, not bf16");
  EXPECT_EQ(told([](BridgeSplash& s) { s.q_len = 128; }),
            "its artifact has q_len 128, not 4096");
  EXPECT_EQ(told([](BridgeSplash& s) { s.kv_len = 128; }),
            "its artifact has kv_len 128, not 4096");
  EXPECT_EQ(told([](BridgeSplash& s) { s.shape.heads = 4; }),
            "its artifact has heads 4, not 8");
  EXPECT_EQ(told([](BridgeSplash& s) { s.shape.kv_heads = 4; }),
            "its artifact has K/V heads 4, not 2");
  EXPECT_EQ(told([](BridgeSplash& s) { s.shape.head_dim = 64; }),
            "its artifact has head dim 64, not 128");
  EXPECT_EQ(told([](BridgeSplash& s) { s.shape.v_head_dim = 128; }),
            "its artifact has value head dim 128, not 64");
  EXPECT_EQ(told([](BridgeSplash& s) { s.shape.scale = 0.5; }),
            "its artifact has scale 0.5, not 0.25");
  EXPECT_EQ(told([](BridgeSplash& s) { s.shape.softcap = 5; }),
            "its artifact has softcap 5, not 0");
  EXPECT_EQ(told([](BridgeSplash& s) { s.block_q = 128; }),
            "its artifact has tile 128x256, not 256x256");
}

TEST(Choose, AForcedLaneRunsOrFails) {
  const AttentionShape shape = {8, 8, 128, 128, {}, 0};
  for (const MachineRow& on : machines()) {
    for (const LaneFacts& lane : lane_registry()) {
      const RequestFeatures f = features("causal & documents", shape, {});
      const auto why = why_not(lane.lane, f, on.machine);
      const auto c = choose(f, {64, 40}, on.machine, {}, lane.lane);
      ASSERT_EQ(c.ok(), !why) << on.name;
      if (c) {
        EXPECT_EQ(c->lane, lane.lane);
        EXPECT_EQ(c->rejected.size(), lane_registry().size() - 1);
      } else {
        EXPECT_EQ(c.error().message,
                  "[dispatch] the lane that was asked for must be able to run "
                  "this, found " +
                      std::string(to_string(lane.lane)) + ": " + *why);
      }
    }
  }
}

GateRow row_of(const RequestFeatures& f, const Machine& m, double density,
               double kernel_ms, double plain_ms) {
  GateRow row;
  row.kernel = "cpu/forward";
  row.machine = m.key();
  row.request_class = f.request_class;
  row.mask = "causal";
  row.dtype = f.call.dtype;
  row.backward = f.call.backward;
  row.q_len = f.q_len;
  row.kv_len = f.kv_len;
  row.shape = f.shape;
  row.density = density;
  row.kernel_ms = kernel_ms;
  row.plain_ms = plain_ms;
  row.plain = XlaMethod::chunked;
  row.factor = plain_ms / kernel_ms;
  row.judgement = GateJudgement::passed;
  row.error = 0.5;
  GateTable alone = {{row}};
  set_verdicts(alone);
  return alone.rows[0];
}

// Rows of one kernel, a shape class each, with these factors.
GateTable table_of(const std::vector<double>& factors) {
  const Machine cpu{"A CPU", 8, {Isa::portable}, true, true, {}};
  GateTable out;
  int64_t tokens = 64;
  for (const double factor : factors) {
    RequestFeatures f =
        features("causal", {8, 8, 128, 128, {}, 0}, {}, tokens *= 2);
    out.rows.push_back(row_of(f, cpu, 0.6, 1, factor));
  }
  set_verdicts(out);
  return out;
}

TEST(Gate, VerdictsAreOverAllRowsOfAKernel) {
  const auto verdict = [](const std::vector<double>& factors) {
    const GateTable table = table_of(factors);
    for (const GateRow& row : table.rows) {
      EXPECT_EQ(row.verdict, table.rows[0].verdict);
    }
    return table.rows[0].verdict;
  };
  EXPECT_EQ(verdict({2, 2, 2}), GateVerdict::promote);
  EXPECT_EQ(verdict({2, 2, 2, 0.5, 1}), GateVerdict::promote);
  // Large wins in few shape classes are experimental.
  EXPECT_EQ(verdict({80}), GateVerdict::experimental);
  EXPECT_EQ(verdict({80, 80}), GateVerdict::experimental);
  EXPECT_EQ(verdict({80, 80, 80, 1, 1, 1, 1}), GateVerdict::experimental);
  // Wins below the factor are ties, and ties everywhere drop the kernel.
  EXPECT_EQ(verdict({1.09, 1.09, 1.09, 1.09}), GateVerdict::drop);
  EXPECT_EQ(verdict({1.1}), GateVerdict::drop);
  EXPECT_EQ(verdict({0.5, 0.9, 1}), GateVerdict::drop);

  // Two rows of one shape class are one win, and no win if one of them loses.
  GateTable twice = table_of({2, 2});
  twice.rows.push_back(twice.rows[0]);
  set_verdicts(twice);
  EXPECT_EQ(twice.rows[2].verdict, GateVerdict::experimental);
  GateTable torn = table_of({2, 2, 2});
  torn.rows.push_back(torn.rows[0]);
  torn.rows.back().factor = 1;
  set_verdicts(torn);
  EXPECT_EQ(torn.rows[0].verdict, GateVerdict::experimental);

  const auto changed = [](auto change) {
    GateTable table = table_of({9, 9, 9, 9});
    change(table.rows[1]);
    set_verdicts(table);
    return table.rows[3].verdict;
  };
  EXPECT_EQ(changed([](GateRow& r) { r.judgement = GateJudgement::wrong; }),
            GateVerdict::wrong);
  EXPECT_EQ(changed([](GateRow& r) { r.judgement = GateJudgement::unjudged; }),
            GateVerdict::unjudged);
  EXPECT_EQ(changed([](GateRow& r) { r.shape_per_step = true; }),
            GateVerdict::out_of_hot_loop);
  EXPECT_EQ(changed([](GateRow& r) { r.kernel = "cpu/backward"; }),
            GateVerdict::promote);  // another kernel has its own verdict
  GateTable none = table_of({9, 9, 9});
  for (GateRow& row : none.rows) row.factor.reset();
  set_verdicts(none);
  EXPECT_EQ(none.rows[0].verdict, GateVerdict::unmeasured);
}

// A kernel that is wrong or out of the hot loop is never chosen: not by its
// rows, nor by the rules, nor for requests that its rows are not about.
TEST(Gate, AWrongKernelIsNeverChosen) {
  const AttentionShape shape = {8, 8, 128, 128, {}, 0};
  const Machine cpu{"A CPU", 8,    {Isa::portable},
                    true,    true, {{"xla_cpu_pjrt", "cpu", 4}}};
  Machine bare = cpu;
  bare.plugins.clear();
  for (const GateVerdict verdict :
       {GateVerdict::wrong, GateVerdict::out_of_hot_loop}) {
    for (const bool backward : {false, true}) {
      GateRow row =
          row_of(features("full", shape, {Dtype::bf16}, 64), cpu, 1, 1, 9);
      row.verdict = verdict;
      row.backward = backward;
      for (const bool wanted : {false, true}) {
        const RequestFeatures f =
            features("causal & documents", shape, {Dtype::f32, false, wanted});
        const auto c = choose(f, {100, 30}, cpu, {{row}});
        ASSERT_TRUE(c.ok()) << c.error().message;
        // A wrong gradient does not bar the forward pass.
        const bool barred = wanted || !backward;
        EXPECT_EQ(c->lane, barred ? LaneId::xla : LaneId::cpu);
        EXPECT_EQ(c->gate.size(), barred ? 1U : 0U);
        if (!barred) continue;
        EXPECT_EQ(find(*c, LaneId::cpu)->reason,
                  "the gate on this machine: cpu/forward is " +
                      std::string(to_string(verdict)));
        GateRow here = row;
        here.machine = bare.key();
        const auto none = choose(f, {100, 30}, bare, {{here}});
        ASSERT_FALSE(none.ok());
        EXPECT_NE(none.error().message.find("cpu: the gate on this machine"),
                  std::string::npos);
        here.machine = "another";
        EXPECT_TRUE(choose(f, {100, 30}, bare, {{here}}).ok());
      }
    }
  }
}

TEST(Gate, AMeasuredRowGoesBeforeTheRules) {
  const AttentionShape shape = {8, 8, 128, 128, {}, 0};
  const Machine cpu{"A CPU", 8,    {Isa::portable},
                    true,    true, {{"xla_cpu_pjrt", "cpu", 4}}};
  const RequestFeatures f = features("causal", shape, {});
  const PlanFacts plan = {100, 55};
  const auto pick = [&](const GateRow& row, const PlanFacts& with) {
    return *choose(f, with, cpu, {{row}});
  };
  GateRow slow = row_of(f, cpu, 0.6, 10, 5);
  Choice c = pick(slow, plan);
  EXPECT_EQ(c.lane, LaneId::xla);
  // Not chunked, whose columns of scores are too large for long rows.
  EXPECT_EQ(c.method, XlaMethod::worklist);
  ASSERT_EQ(c.gate.size(), 1U);
  const std::string lost =
      "measured on this machine at density 0.6: cpu/forward took 2.00 times as "
      "long as xla's chunked program (verdict: delete)";
  EXPECT_EQ(c.reason, lost + "; plain causal stays with worklist");
  GateRow listed = slow;
  listed.plain = XlaMethod::worklist;
  EXPECT_EQ(pick(listed, plan).method, XlaMethod::worklist);
  EXPECT_TRUE(pick(listed, plan).reason.ends_with("(verdict: delete)"));
  EXPECT_EQ(pick(row_of(f, cpu, 0.6, 5, 10), plan).lane, LaneId::cpu);
  EXPECT_EQ(pick(row_of(f, cpu, 0.6, 10, 10.5), plan).lane, LaneId::xla);
  // A row that loses goes to XLA even if its kernel is promoted.
  slow.verdict = GateVerdict::promote;
  EXPECT_EQ(pick(slow, plan).lane, LaneId::xla);
  slow.verdict = GateVerdict::unjudged;
  EXPECT_EQ(pick(slow, plan).lane, LaneId::cpu);
  EXPECT_TRUE(pick(slow, plan).gate.empty());
  slow.verdict = GateVerdict::drop;

  // The row does not apply to another density, machine or shape.
  EXPECT_EQ(pick(slow, {100, 20}).lane, LaneId::cpu);
  EXPECT_TRUE(pick(slow, {100, 20}).gate.empty());
  const auto but = [&](auto change) {
    GateRow row = slow;
    change(row);
    return pick(row, plan).lane;
  };
  EXPECT_EQ(but([](GateRow&) {}), LaneId::xla);
  EXPECT_EQ(but([](GateRow& r) { r.q_len = 4000; }), LaneId::xla);  // a bucket
  EXPECT_EQ(but([](GateRow& r) { r.shape.heads = r.shape.kv_heads = 2; }),
            LaneId::xla);
  EXPECT_EQ(but([](GateRow& r) { r.machine = "B CPU"; }), LaneId::cpu);
  EXPECT_EQ(but([](GateRow& r) { r.request_class = kSparse; }), LaneId::cpu);
  EXPECT_EQ(but([](GateRow& r) { r.backward = true; }), LaneId::cpu);
  EXPECT_EQ(but([](GateRow& r) { r.dtype = Dtype::bf16; }), LaneId::cpu);
  EXPECT_EQ(but([](GateRow& r) { r.shape.head_dim = 64; }), LaneId::cpu);
  EXPECT_EQ(but([](GateRow& r) { r.shape.v_head_dim = 64; }), LaneId::cpu);
  EXPECT_EQ(but([](GateRow& r) { r.shape.kv_heads = 4; }), LaneId::cpu);
  EXPECT_EQ(but([](GateRow& r) { r.shape.softcap = 30; }), LaneId::cpu);
  EXPECT_EQ(but([](GateRow& r) { r.q_len = 2048; }), LaneId::cpu);
  EXPECT_EQ(but([](GateRow& r) { r.kv_len = 9000; }), LaneId::cpu);
  EXPECT_EQ(but([](GateRow& r) { r.verdict = GateVerdict::unmeasured; }),
            LaneId::cpu);

  // If the row's winner cannot run, the rules decide. A forced lane stays.
  Machine bare = cpu;
  bare.plugins.clear();
  const auto ruled = choose(f, plan, bare, {{slow}});
  EXPECT_EQ(ruled->lane, LaneId::cpu);
  EXPECT_TRUE(ruled->gate.empty());
  EXPECT_EQ(choose(f, plan, cpu, {{slow}}, LaneId::cpu)->lane, LaneId::cpu);
}

// Documents go to our kernel on a TPU, unless a row says that Splash wins and
// Splash's kernel was given.
TEST(Gate, ARowMayChooseSplash) {
  const Machine tpu{"A CPU", 8,    {Isa::portable},
                    true,    true, {{"libtpu", "tpu", 4}}};
  const AttentionShape shape = {8, 8, 128, 128, 0.125, 0};
  RequestFeatures f = features("causal & documents", shape, {Dtype::bf16});
  const PlanFacts plan = {64, 20};
  GateRow wins = row_of(f, tpu, plan.density(), 1, 2);
  wins.kernel = "splash/forward";
  wins.lane = LaneId::splash;
  wins.mask = "causal & documents";
  EXPECT_EQ(choose(f, plan, tpu, {{wins}})->lane, LaneId::mosaic);
  give_splash(f);
  EXPECT_EQ(choose(f, plan, tpu)->lane, LaneId::mosaic);
  const auto chosen = choose(f, plan, tpu, {{wins}});
  ASSERT_TRUE(chosen.ok()) << chosen.error().message;
  EXPECT_EQ(chosen->lane, LaneId::splash);
  EXPECT_EQ(chosen->gate.at(0).kernel, "splash/forward");
  const auto read = parse_gate(gate_json({{wins}}));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->rows[0].lane, LaneId::splash);
  // A row has no scale, so it chooses no kernel with scores out of bounds.
  f.shape.scale = {};
  give_splash(f);
  EXPECT_EQ(choose(f, plan, tpu, {{wins}})->lane, LaneId::mosaic);
  EXPECT_TRUE(choose(f, plan, tpu, {{wins}}, LaneId::splash).ok());
}

// Of two kernels that win, the one further ahead is chosen, in any order of the
// table. If it cannot run here, the other is chosen.
TEST(Gate, OfKernelsThatWinTheOneFurthestAheadRuns) {
  const Machine tpu{"A CPU", 8,    {Isa::portable},
                    true,    true, {{"libtpu", "tpu", 4}}};
  const AttentionShape shape = {8, 8, 128, 128, 0.125, 0};
  const RequestFeatures without =
      features("causal & documents", shape, {Dtype::bf16});
  RequestFeatures with = without;
  give_splash(with);
  const PlanFacts plan = {64, 20};
  const auto row = [&](LaneId lane, double ms) {
    GateRow out = row_of(without, tpu, plan.density(), ms, 4);
    out.kernel = lane == LaneId::splash ? "splash/forward" : "mosaic/forward";
    out.lane = lane;
    return out;
  };
  const auto lane_of = [&](const RequestFeatures& f, double mosaic,
                           double splash) {
    const GateTable one = {
        {row(LaneId::mosaic, mosaic), row(LaneId::splash, splash)}};
    const GateTable other = {{one.rows[1], one.rows[0]}};
    const auto a = choose(f, plan, tpu, one);
    const auto b = choose(f, plan, tpu, other);
    EXPECT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(a->lane, b->lane);
    return a->lane;
  };
  EXPECT_EQ(lane_of(with, 1, 2), LaneId::mosaic);
  EXPECT_EQ(lane_of(with, 2, 1), LaneId::splash);
  EXPECT_EQ(lane_of(without, 2, 1), LaneId::mosaic);
  EXPECT_EQ(lane_of(with, 8, 2), LaneId::splash);
  EXPECT_EQ(lane_of(with, 2, 8), LaneId::mosaic);
  EXPECT_EQ(lane_of(without, 8, 2), LaneId::xla);
  EXPECT_EQ(lane_of(with, 8, 8), LaneId::xla);
  // A row that Splash loses counts only for plain causal.
  const GateTable alone = {{row(LaneId::splash, 8)}};
  EXPECT_EQ(choose(with, plan, tpu, alone)->lane, LaneId::mosaic);
}

TEST(Gate, TablesGoThroughJson) {
  const AttentionShape shape = {8, 2, 128, 64, {}, 30};
  const Machine cpu{"A CPU", 8, {Isa::portable}, true, true, {}};
  GateTable table;
  table.rows.push_back(row_of(features("causal", shape, {}), cpu, 0.25, 3, 4));
  GateRow tpu = table.rows[0];
  tpu.kernel = "mosaic/forward";
  tpu.lane = LaneId::mosaic;
  tpu.kernel_ms.reset();
  tpu.plain_ms.reset();
  tpu.factor.reset();
  tpu.judgement = GateJudgement::unjudged;
  tpu.error.reset();
  tpu.verdict = GateVerdict::unmeasured;
  tpu.why = "no TPU";
  tpu.tile = {512, 256};
  table.rows.push_back(tpu);
  const std::string json = gate_json(table);
  const auto again = parse_gate(json);
  ASSERT_TRUE(again.ok()) << again.error().message;
  ASSERT_EQ(again->rows.size(), 2u);
  EXPECT_EQ(gate_json(*again), json);
  EXPECT_EQ(again->rows[1].lane, LaneId::mosaic);
  EXPECT_EQ(again->rows[1].tile, (Tile{512, 256}));
  EXPECT_FALSE(again->rows[0].tile);  // tables of before do not tell it

  const auto broken = [&](const std::string& from, const std::string& to) {
    std::string text = json;
    text.replace(text.find(from), from.size(), to);
    const auto r = parse_gate(text);
    return r ? std::string("read") : r.error().message;
  };
  EXPECT_EQ(broken("\"experimental\"", "\"promote\""),
            "[gate] a verdict must be that of all its kernel's rows, "
            "experimental, found promote for 'cpu/forward'");
  EXPECT_EQ(broken("\"passed\"", "\"unjudged\""),
            "[gate] a judgement must be that of its error, passed, found "
            "unjudged for 'cpu/forward'");
  EXPECT_EQ(broken("\"error\": 0.5", "\"error\": 1.5"),
            "[gate] a judgement must be that of its error, wrong, found passed "
            "for 'cpu/forward'");
  EXPECT_EQ(broken("\"plain_ms\": 4.0", "\"plain_ms\": 5.0"),
            "[gate] factor must be plain XLA's figure over the kernel's, null "
            "without them, found other for 'cpu/forward'");
  EXPECT_EQ(broken("\"shape_per_step\": false", "\"shape_per_step\": 0"),
            "[gate] shape_per_step must be true or false, found the integer 0 "
            "for it");
  EXPECT_EQ(broken("\"mask\": \"causal\"", "\"mask\": \"\""),
            "[gate] mask must be a text, found an empty one");
  EXPECT_EQ(broken("\"mask\": \"causal\"", "\"mask\": [\"causal\"]"),
            "[gate] mask must be a string, found an array of 1 for it");
  EXPECT_EQ(broken("\"mask\": \"causal\"", "\"mask\": \"causal\\n\""),
            "[gate] mask must hold no control characters, found "
            "'causal\\x0a'");
  EXPECT_EQ(broken("\"mask\": \"causal\"", "\"mask\": \"causal &\""),
            "[gate] mask must be an expression, found \"[mask] expected an "
            "atom, '!' or '(', found the end at column 9\" for 'causal &'");
  EXPECT_EQ(broken("\"mask\": \"causal\"", "\"mask\": \"documents\""),
            "[gate] class must be that of mask and softcap, sparse blocks, "
            "found custom for 'documents'");
  EXPECT_EQ(broken("\"A CPU, ", "\"A\\nCPU, "),
            "[gate] machine must hold no control characters, found "
            "'A\\x0aCPU, 8 threads, portable'");
  EXPECT_EQ(broken("\"cpu/forward\"", "\"xla/forward\""),
            "[gate] kernel must be one of its lane, cpu, found 'xla/forward'");
  EXPECT_EQ(broken("\"lane\": \"cpu\"", "\"lane\": \"reference\""),
            "[gate] lane must be one that has kernels, found reference");
  EXPECT_EQ(broken("\"unmeasured\"", "\"promote\""),
            "[gate] a verdict must be that of all its kernel's rows, "
            "unmeasured, found promote for 'mosaic/forward'");
  EXPECT_TRUE(broken("\"density\": 0.25", "\"density\": 1.5")
                  .starts_with("[gate] density must be a number from 0 to 1"));
  EXPECT_TRUE(broken("\"kernel_ms\": 3.0", "\"kernel_ms\": 0")
                  .starts_with("[gate] kernel_ms must be "));
  EXPECT_EQ(broken("\"schema\": 3", "\"schema\": 2"),
            "[gate] schema must be 3, found the integer 2: another version "
            "wrote it, record it again");
  EXPECT_TRUE(broken("\"q_len\"", "\"qlen\"").starts_with("[gate] "));
  EXPECT_TRUE(broken("\"lane\": \"cpu\"", "\"lane\": \"npu\"")
                  .starts_with("[dispatch] a lane must be one of "));
  EXPECT_TRUE(broken("\"rows\": [", "\"rows\": [3, ").starts_with("[gate] "));
  EXPECT_TRUE(parse_gate("{").error().message.starts_with("[gate] "));
  EXPECT_EQ(parse_gate(gate_json({})).error().message,
            "[gate] rows must be an array of 1 to 65536, found an array of 0");
}

// The fields of a table beside its rows are optional, but are checked.
TEST(Gate, ATableTellsOfItsMaking) {
  const Machine cpu{"A CPU", 8, {Isa::portable}, true, true, {}};
  const RequestFeatures f = features("causal", {8, 8, 128, 128, {}, 0}, {});
  const auto table =
      nlohmann::json::parse(gate_json({{row_of(f, cpu, 0.25, 3, 4)}}));
  const auto with = [&](const char* name, const nlohmann::json& value) {
    auto text = table;
    text[name] = value;
    const auto r = parse_gate(text.dump());
    return r ? std::string("read") : r.error().message;
  };
  for (const char* name : {"machine", "tessera", "plugin"}) {
    const std::string rule = std::string("[gate] ") + name + " must ";
    EXPECT_EQ(with(name, "a text"), "read");
    EXPECT_EQ(with(name, ""), rule + "be a text, found an empty one");
    EXPECT_EQ(with(name, 7), rule + "be a string, found the integer 7 for it");
    EXPECT_EQ(with(name, nullptr), rule + "be a string, found null for it");
    EXPECT_EQ(with(name, "a\nb"),
              rule + "hold no control characters, found 'a\\x0ab'");
  }
  EXPECT_EQ(with("quick", true), "read");
  EXPECT_EQ(with("quick", "yes"),
            "[gate] quick must be true or false, found the string 'yes' for "
            "it");
  EXPECT_EQ(with("busy_cores", 0.5), "read");
  EXPECT_EQ(with("busy_cores", -1),
            "[gate] busy_cores must be a number from 0 to 1000000, found the "
            "integer -1");
  EXPECT_EQ(with("busy_cores", true),
            "[gate] busy_cores must be a number from 0 to 1000000, found true");
}

// A machine with TPUs of the generation.
Machine tpu_of(const std::string& generation) {
  return {"A CPU", 8,    {Isa::portable},
          true,    true, {{"libtpu", "tpu", 4, generation}}};
}

// A judged row of v6e with these cycles.
GateRow predicted_of(const RequestFeatures& f, double density, double kernel,
                     double plain) {
  GateRow row = row_of(f, tpu_of("v6e"), density, 1, 1);
  row.kernel = "mosaic/forward";
  row.lane = LaneId::mosaic;
  row.basis = GateBasis::predicted;
  row.machine = "";
  row.generation = "v6e";
  row.kernel_ms.reset();
  row.plain_ms.reset();
  row.kernel_cycles = kernel;
  row.plain_cycles = plain;
  row.error_bar = 1.28;
  row.factor = plain / kernel;
  GateTable alone = {{row}};
  set_verdicts(alone);
  return alone.rows[0];
}

// Count of tiles with a legal pair, found pair by pair.
int64_t active_by_hand(const Expr& mask, const Request& request,
                       const Facts& facts) {
  const testing::Oracle oracle({mask}, request, facts);
  const Tile& tile = request.tile;
  const auto any = [&](int64_t i_begin, int64_t j_begin) {
    const int64_t i_end = std::min(i_begin + tile.q, request.q_len);
    const int64_t j_end = std::min(j_begin + tile.kv, request.kv_len);
    for (int64_t i = i_begin; i < i_end; ++i) {
      for (int64_t j = j_begin; j < j_end; ++j) {
        if (oracle.legal(0, 0, i, j)) return true;
      }
    }
    return false;
  };
  int64_t out = 0;
  for (int64_t i = 0; i < request.q_len; i += tile.q) {
    for (int64_t j = 0; j < request.kv_len; j += tile.kv) out += any(i, j);
  }
  return out;
}

// Decoding, chunks of a prompt, few valid tokens: plain causal goes by the
// tiles of its plan, and like the full mask if the plan has all tiles.
TEST(Choose, PlainCausalGoesByItsPlan) {
  struct Row {
    Lengths lengths;
    std::optional<int32_t> offset, valid;
    const char* tpu;
    const char* gpu;
  };
  const Row rows[] = {
      {{1, 8192}, {}, {}, "chunked", "chunked"},
      {{64, 8192}, {}, {}, "chunked", "chunked"},
      {{300, 8192}, {}, {}, "chunked", "chunked"},
      {{256, 65536}, {}, {}, "chunked", "chunked"},
      {{1024, 65536}, {}, {}, "worklist", "worklist"},  // 1,018 of 1,024
      {{4096, 4096}, 4096, {}, "chunked", "chunked"},
      {{4096, 8192}, {}, {}, "worklist", "worklist"},
      // All tiles, but more scores than 1,024 x 1,024 at a time.
      {{4097, 8192}, 8192, {}, "worklist", "worklist"},
      {{8192, 8192}, 8192, {}, "worklist", "worklist"},
      {{5000, 200}, 0, {}, "worklist", "worklist"},
      {{300, 1000}, {}, {}, "dense", "dense"},
      {{1024, 1024}, {}, {}, "dense", "dense"},  // 10 of 16
      {{1024, 1024}, {}, 100, "worklist", "dense"},
      {{512, 512}, {}, 100, "worklist", "dense"},
      {{2048, 2048}, {}, 100, "worklist", "worklist"},
  };
  constexpr MaskRow kThree[] = {
      {"causal", kPlain}, {"full", kOther}, {"causal & chunk(1024)", kOther}};
  const AttentionShape shape = {8, 8, 128, 128, {}, 0};
  int whole = 0;
  for (const Row& row : rows) {
    for (const MaskRow& mask : kThree) {
      Request request;
      request.masks = {*parse_mask(mask.text)};
      request.q_len = row.lengths.q;
      request.kv_len = row.lengths.kv;
      OwnedFacts facts;
      if (row.offset) facts.q_offsets.emplace(1, *row.offset);
      if (row.valid) facts.valid_token_counts.emplace(1, *row.valid);
      const auto plan = plan::make_plan(request, facts.view());
      ASSERT_TRUE(plan.ok()) << plan.error().message;
      const PlanFacts of = plan_facts(*plan);
      if (mask.due == kPlain) {
        ASSERT_EQ(of.active, active_by_hand(*parse_expr(mask.text), request,
                                            facts.view()));
        whole += of.active == of.tiles;
      }
      for (const MachineRow& on : machines()) {
        for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
          const std::string what =
              fmt::format("{}, {}, {} x {}, {} of {}", on.name, mask.text,
                          row.lengths.q, row.lengths.kv, of.active, of.tiles);
          const RequestFeatures f =
              features_of(request, facts.view(), shape, {dtype});
          const auto choice = choose(f, of, on.machine);
          expect_due(
              choice,
              due_of(mask, shape, {dtype}, on, row.lengths, of.density()), f,
              on, what);
          const std::string device = on.device;
          if (mask.due != kPlain || (device != "tpu" && device != "cuda")) {
            continue;
          }
          ASSERT_TRUE(choice.ok()) << what;
          EXPECT_EQ(to_string(choice->method),
                    device == "tpu" ? row.tpu : row.gpu)
              << what;
        }
      }
    }
  }
  EXPECT_EQ(whole, 9);
}

TEST(Choose, PlainCausalSaysHowItsPlanDecided) {
  const AttentionShape shape = {8, 8, 128, 128, {}, 0};
  const auto told = [&](int64_t q_len, int64_t kv_len, const PlanFacts& plan) {
    Request request;
    request.masks = {*parse_mask("causal")};
    request.q_len = q_len;
    request.kv_len = kv_len;
    const auto c = choose(features_of(request, {}, shape, {Dtype::bf16}), plan,
                          tpu_of("v6e"));
    EXPECT_TRUE(c.ok()) << c.error().message;
    // Each row is predicted; the reason ends with how far that is checked.
    const std::string known =
        "; predicted, known of another kernel's forward passes without "
        "documents or softcap";
    EXPECT_TRUE(c->reason.ends_with(known)) << c->reason;
    return std::string(c->rule->name) + ": " +
           c->reason.substr(0, c->reason.size() - known.size());
  };
  EXPECT_EQ(told(1, 8192, {32, 32}),
            "tpu worklist, forward: plain causal that skips nothing goes as "
            "the full mask: 32 of 32 tiles are active, not below 0.62 of them: "
            "the compiler's own program, an online softmax");
  EXPECT_EQ(told(8192, 8192, {1024, 1024}),
            "plain causal: plain causal goes to the stable kernel: the "
            "compiler's loop over the worklist; nothing is skipped, but "
            "chunked would hold 2097152 scores a head at a time, more than "
            "1048576");
  EXPECT_EQ(told(8192, 8192, {1024, 528}),
            "plain causal: plain causal goes to the stable kernel: the "
            "compiler's loop over the worklist");
  EXPECT_EQ(told(1024, 1024, {16, 1}),
            "tpu worklist, forward: plain causal goes to the stable kernel: 1 "
            "of 16 tiles are active, which is below 0.62 of them: xla's loop "
            "over the worklist");
  EXPECT_EQ(told(1024, 1024, {16, 10}),
            "plain causal: plain causal goes to the stable kernel: 1024 tokens "
            "are not beyond 1024: the compiler's own program, all scores at a "
            "time");
}

// If no tile is skipped, a TPU takes the worklist once chunked is slower by
// more than the error bar, due to its column: all queries by a tile's keys.
TEST(Choose, WhatSkipsNothingGoesByItsQueries) {
  AttentionShape shape = {8, 8, 128, 128, {}, 0};
  const auto told = [&](const char* mask, Lengths lengths, bool backward) {
    Request request;
    request.masks = {*parse_mask(mask)};
    request.q_len = lengths.q;
    request.kv_len = lengths.kv;
    const auto c =
        choose(features_of(request, {}, shape,
                           {.dtype = Dtype::bf16, .backward = backward}),
               {1024, 1024}, tpu_of("v6e"));
    EXPECT_TRUE(c.ok()) << c.error().message;
    EXPECT_EQ(c->lane, LaneId::xla);
    return fmt::format("{}, {}: {}", to_string(c->method), c->rule->name,
                       c->reason.substr(0, c->reason.find(": ")));
  };
  const std::string list =
      "worklist, tpu worklist, long, forward: 1024 of 1024 tiles are active, "
      "and 8192 queries are beyond 6144";
  for (const char* mask : {"full", "full | documents", "window(8191, 8191)"}) {
    EXPECT_EQ(told(mask, {8192, 8192}, false), list) << mask;
  }
  EXPECT_EQ(told("full", {8192, 100}, false), list);
  EXPECT_EQ(told("full", {8192, 8192}, true),
            "chunked, tpu worklist, long, backward: 1024 of 1024 tiles are "
            "active, not below all of them");
  const std::string column =
      "chunked, tpu worklist, forward: 1024 of 1024 tiles are active, not "
      "below 0.62 of them";
  EXPECT_EQ(told("full", {6144, 6144}, false), column);
  EXPECT_EQ(told("full", {6144, 65536}, false), column);
  EXPECT_EQ(told("full", {1, 65536}, false), column);
  shape.softcap = 30;
  EXPECT_EQ(told("full", {8192, 8192}, false), list);
}

// A choice on another TPU by v6e's figures says that they are borrowed.
TEST(Choose, AThresholdOfAnotherGenerationSaysSo) {
  const AttentionShape shape = {8, 8, 128, 128, {}, 0};
  const std::pair<std::string, std::string> kNotes[] = {
      {"v4", "; the threshold is borrowed from v6e, applied to v4"},
      {"v5e", "; the threshold is borrowed from v6e, applied to v5e"},
      {"v5p", "; the threshold is borrowed from v6e, applied to v5p"},
      {"v6e", ""},
      {"tpu7x", "; the threshold is borrowed from v6e, applied to tpu7x"},
      {"",
       "; the threshold is borrowed from v6e, applied to a TPU whose "
       "generation is not "
       "known"}};
  for (const auto& [generation, note] : kNotes) {
    const Machine tpu = tpu_of(generation);
    const auto told = [&](const char* mask, Dtype dtype, LaneId lane,
                          std::string_view rule, std::string_view due) {
      const auto c = choose(features(mask, shape, {dtype}), {100, 50}, tpu);
      ASSERT_TRUE(c.ok()) << c.error().message;
      EXPECT_EQ(c->lane, lane);
      ASSERT_NE(c->rule, nullptr);
      EXPECT_EQ(c->rule->name, rule);
      const std::string known =
          "; predicted, known of another kernel's forward passes without "
          "documents or softcap" +
          std::string(due);
      EXPECT_TRUE(c->reason.ends_with(known)) << c->reason;
      EXPECT_EQ(c->reason.find("threshold") != c->reason.npos, !due.empty());
      EXPECT_EQ(source_words(*c->rule, tpu),
                std::string(c->rule->source) + known);
    };
    told("causal & window(99, 0)", Dtype::bf16, LaneId::mosaic, "tpu kernels",
         note);
    told("causal & window(99, 0)", Dtype::f16, LaneId::xla,
         "tpu worklist, forward", note);
    told("causal", Dtype::bf16, LaneId::xla, "plain causal", note);
  }
  const Machine gpu{"A CPU", 8,    {Isa::portable},
                    true,    true, {{"/opt/cuda.so", "cuda", 1}}};
  const auto there =
      choose(features("causal", shape, {Dtype::bf16}), {100, 50}, gpu);
  ASSERT_TRUE(there.ok()) << there.error().message;
  EXPECT_TRUE(there->reason.ends_with(
      "; the threshold is borrowed from v6e, applied to cuda"))
      << there->reason;
  const auto share = choose(
      features("causal & window(99, 0)", shape, {Dtype::bf16}), {100, 50}, gpu);
  ASSERT_TRUE(share.ok()) << share.error().message;
  EXPECT_TRUE(share->reason.ends_with(
      "; the threshold is borrowed from AMD EPYC, applied to cuda"))
      << share->reason;
  const auto other =
      choose(features("causal & window(99, 0)", shape, {Dtype::bf16}),
             {100, 50}, tpu_of("v99"));
  ASSERT_TRUE(other.ok()) << other.error().message;
  EXPECT_EQ(other->lane, LaneId::xla);
  EXPECT_EQ(find(*other, LaneId::mosaic)->reason,
            "its kernels are of v4, v5e, v5p, v6e, tpu7x, and libtpu has a "
            "'v99'");
}

// So does a choice on a CPU of another model than that of the figures.
TEST(Choose, AThresholdOfAnotherCpuSaysSo) {
  const AttentionShape shape = {8, 8, 128, 128, {}, 0};
  const RequestFeatures causal = features("causal", shape, {});
  const RequestFeatures window = features("causal & window(99, 0)", shape, {});
  const auto told = [&](const RequestFeatures& f, const std::string& cpu,
                        std::vector<Isa> isas, std::string_view due) {
    const Machine m = {cpu,  8,    std::move(isas),
                       true, true, {{"xla_cpu_pjrt", "cpu", 4}}};
    const auto c = choose(f, {100, 50}, m);
    ASSERT_TRUE(c.ok()) << c.error().message;
    ASSERT_NE(c->rule, nullptr);
    // This row has a TPU's figures.
    const bool is_predicted = c->rule->name == "plain causal";
    const std::string known =
        (is_predicted ? "; predicted, known of another kernel's forward passes "
                        "without documents or softcap"
                      : "") +
        std::string(due);
    EXPECT_TRUE(c->reason.ends_with(known)) << c->reason;
    EXPECT_EQ(c->reason.find("borrowed") != c->reason.npos, !due.empty());
    EXPECT_EQ(c->reason.find("predicted") != c->reason.npos, is_predicted);
    EXPECT_EQ(source_words(*c->rule, m), std::string(c->rule->source) + known);
  };
  const std::vector<Isa> some = {Isa::portable};
  told(causal, "AMD EPYC", some, "");
  told(causal, "Another", some,
       "; the threshold is borrowed from AMD EPYC, applied to Another");
  told(causal, "", some,
       "; the threshold is borrowed from AMD EPYC, applied to a CPU that is "
       "not known");
  // Without an ISA for our kernels XLA's program runs, by v6e's figures.
  told(causal, "AMD EPYC", {},
       "; the threshold is borrowed from v6e, applied to AMD EPYC");
  told(window, "AMD EPYC", {}, "");
  told(window, "Another", {},
       "; the threshold is borrowed from AMD EPYC, applied to Another");
}

// The vector memory of this machine's TPU decides. If the call has a backward
// pass, the kernels of both directions must fit.
TEST(Choose, AKernelBeyondThatChipsVectorMemoryGoesToAnotherLane) {
  std::map<std::string_view, int> refused;
  int forward_alone = 0;
  const auto judge = [&](const Chip& chip, AttentionCall call, int64_t side,
                         int64_t tokens) {
    SCOPED_TRACE(fmt::format("{}, {}, {}", chip.name, side, tokens));
    Request request;
    request.masks = {*parse_mask("causal & window(999, 0)")};
    request.q_len = request.kv_len = tokens;
    request.tile = {side, side};
    const auto kernel_of = [&](bool backward) {
      AttentionCall one = call;
      one.backward = backward;
      return mosaic::plan_kernel(request, {}, one, std::string(chip.name),
                                 {1, 1});
    };
    const auto c =
        choose(features_of(request, {}, call.shape,
                           {.dtype = call.dtype, .backward = call.backward}),
               {64, 4}, tpu_of(std::string(chip.name)));
    ASSERT_TRUE(c.ok()) << c.error().message;
    const bool forward = kernel_of(false).ok();
    const bool backward = !call.backward || kernel_of(true).ok();
    EXPECT_EQ(c->lane, forward && backward ? LaneId::mosaic : LaneId::xla);
    if (forward && backward) return;
    ++refused[chip.name];
    if (backward && call.backward) ++forward_alone;
    const std::string& why = find(*c, LaneId::mosaic)->reason;
    EXPECT_TRUE(
        why.starts_with(backward ? "its forward has " : "its backward has "))
        << why;
    EXPECT_NE(why.find(" bytes of vector memory, not "), why.npos) << why;
  };
  for (const Chip& chip : chips()) {
    for (const auto& [dtype, dim] :
         {std::pair(Dtype::f32, 256), {Dtype::bf16, 128}}) {
      AttentionCall call;
      call.shape = {8, 8, dim, dim, {}, 0};
      call.dtype = dtype;
      for (const bool backward : {false, true}) {
        call.backward = backward;
        for (const int64_t side : {256, 512, 1024}) {
          for (const int64_t tokens : {2048, 16384, 65536}) {
            judge(chip, call, side, tokens);
          }
        }
        judge(chip, call, 1024, 1 << 22);  // ids alone take 32 MiB
      }
    }
  }
  EXPECT_GT(forward_alone, 0);
  // Chips with equal vector memory refuse equally many calls; less memory
  // refuses more.
  EXPECT_EQ(refused["v5e"], refused["v6e"]);
  EXPECT_EQ(refused["v5p"], refused["tpu7x"]);
  EXPECT_GT(refused["v5p"], refused["v6e"]);
  EXPECT_GT(refused["v4"], refused["v5p"]);
}

TEST(Gate, APredictedRowSpeaksForItsGeneration) {
  const AttentionShape shape = {8, 8, 128, 128, {}, 0};
  const RequestFeatures f = features("causal", shape, {Dtype::bf16});
  const PlanFacts plan = {100, 55};
  const auto on = [&](const GateRow& row, const Machine& m) {
    return *choose(f, plan, m, {{row}});
  };
  const GateRow ahead = predicted_of(f, 0.6, 1e5, 3e5);
  EXPECT_EQ(ahead.verdict, GateVerdict::experimental);
  const Choice c = on(ahead, tpu_of("v6e"));
  EXPECT_EQ(c.lane, LaneId::mosaic);
  ASSERT_EQ(c.gate.size(), 1U);
  EXPECT_EQ(c.gate.at(0).basis, GateBasis::predicted);
  EXPECT_EQ(c.rule, nullptr);
  EXPECT_EQ(c.reason,
            "predicted for v6e at density 0.6, of 8 heads and " +
                std::to_string(f.q_len) + " x " + std::to_string(f.kv_len) +
                " tokens: mosaic/forward takes 100000 cycles and xla's chunked "
                "program 300000, 3 times apart, beyond the error bar of 1.28, "
                "known of another kernel's forward passes without documents or "
                "softcap (verdict: experimental)");
  // The row does not apply to another or an unknown generation, to a machine
  // whose TPU runs nothing, or if another device comes first.
  Machine compiles = tpu_of("v6e");
  compiles.plugins[0].devices = 0;
  Machine gpu = tpu_of("v6e");
  gpu.plugins.insert(gpu.plugins.begin(), {"/opt/cuda.so", "cuda", 1});
  for (const Machine& m :
       {tpu_of("v5e"), tpu_of("v5p"), tpu_of(""), compiles, gpu}) {
    const Choice other = on(ahead, m);
    EXPECT_TRUE(other.gate.empty()) << m.key();
    EXPECT_EQ(other.lane, m.only_cpu() ? LaneId::cpu : LaneId::xla) << m.key();
  }
  // Nor does it apply to another shape or density.
  EXPECT_TRUE(choose(f, {100, 20}, tpu_of("v6e"), {{ahead}})->gate.empty());

  // A lead within the error bar is a tie; 1.10 is not the limit here.
  for (const double factor : {1.0, 1.11, 1.27, 1.28}) {
    const GateRow tie = predicted_of(f, 0.6, 1e5, factor * 1e5);
    EXPECT_EQ(tie.verdict, GateVerdict::drop) << factor;
    EXPECT_FALSE(wins(tie));
    const Choice to = on(tie, tpu_of("v6e"));
    EXPECT_EQ(to.lane, LaneId::xla);
    EXPECT_EQ(to.method, XlaMethod::worklist);
    EXPECT_NE(to.reason.find("a tie within the error bar of 1.28"),
              std::string::npos)
        << to.reason;
  }
  EXPECT_TRUE(wins(predicted_of(f, 0.6, 1e5, 1.29e5)));
  const Choice behind = on(predicted_of(f, 0.6, 2e5, 1e5), tpu_of("v6e"));
  EXPECT_EQ(behind.lane, LaneId::xla);
  EXPECT_NE(behind.reason.find("2 times apart, beyond"), std::string::npos);

  // A row measured on the machine comes first, whatever its place in the table.
  GateRow measured = row_of(f, tpu_of("v6e"), 0.6, 2, 1);
  measured.kernel = "mosaic/forward";
  measured.lane = LaneId::mosaic;
  const auto both = choose(f, plan, tpu_of("v6e"), {{ahead, measured}});
  EXPECT_EQ(both->lane, LaneId::xla);
  EXPECT_EQ(both->gate.at(0).basis, GateBasis::measured);
  EXPECT_EQ(measured.machine, "A CPU, 8 threads, portable, 4 x tpu v6e");
  EXPECT_TRUE(choose(f, plan, tpu_of("v5e"), {{measured}})->gate.empty());
}

// A row of the full mask does not apply to a plan that skips half, or reverse.
TEST(Gate, ARowOfTheFullMaskSpeaksForWhatSkipsNothing) {
  AttentionShape shape = {8, 8, 128, 128, {}, 0};
  for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
    const GateRow tie =
        predicted_of(features("full", shape, {dtype}), 1, 1e5, 1.1e5);
    const auto on = [&](const char* mask, const PlanFacts& plan) {
      return *choose(features(mask, shape, {dtype}), plan, tpu_of("v6e"),
                     {{tie}});
    };
    const Choice whole = on("full", {256, 256});
    EXPECT_EQ(whole.lane, LaneId::xla);
    EXPECT_EQ(whole.method, XlaMethod::chunked);
    EXPECT_EQ(whole.gate.size(), 1U);
    for (const auto& [mask, active] :
         {std::pair("!causal", 136), {"sink(2100)", 144}, {"full", 255}}) {
      const Choice c = on(mask, {256, active});
      EXPECT_TRUE(c.gate.empty()) << mask;
      EXPECT_EQ(c.lane, dtype == Dtype::f16 ? LaneId::xla : LaneId::mosaic);
      if (dtype == Dtype::bf16) continue;
      EXPECT_EQ(c.method,
                active < 255 ? XlaMethod::worklist : XlaMethod::chunked)
          << mask;
    }
  }
  shape.softcap = 30;
  const GateRow ahead =
      predicted_of(features("causal", shape, {Dtype::bf16}), 0.53125, 1e5, 4e5);
  const auto on = [&](int64_t active) {
    return *choose(features("full", shape, {Dtype::bf16}), {256, active},
                   tpu_of("v6e"), {{ahead}});
  };
  EXPECT_EQ(on(255).lane, LaneId::mosaic);
  EXPECT_EQ(on(255).gate.size(), 1U);
  EXPECT_EQ(on(256).lane, LaneId::xla);
  EXPECT_EQ(on(256).method, XlaMethod::chunked);
  EXPECT_TRUE(on(256).gate.empty());
}

// The row's fastest program of XLA visits every tile. A plan that skips more
// than the row's, and enough by the rules, still goes to the worklist.
TEST(Gate, ALossNeverGoesDenseForWhatSkips) {
  const AttentionShape shape = {8, 8, 128, 128, {}, 0};
  const RequestFeatures f = features("sink(4)", shape, {Dtype::bf16});
  Machine gpu = tpu_of("");
  gpu.plugins = {{"/opt/cuda.so", "cuda", 1}};
  Machine cpu = gpu;
  cpu.plugins = {{"xla_cpu_pjrt", "cpu", 4}};
  int by_the_row = 0, listed = 0;
  for (const auto& [machine, least] :
       {std::pair(tpu_of("v6e"), 0.62), {gpu, 0.67}, {cpu, 0.67}}) {
    for (const double density : {1.0, 0.9, 0.55, 0.5, 0.1}) {
      for (const XlaMethod plain :
           {XlaMethod::dense, XlaMethod::chunked, XlaMethod::worklist}) {
        GateRow row = row_of(f, machine, density, 2, 1);
        row.plain = plain;
        for (int64_t active = 1; active <= 100; ++active) {
          const PlanFacts plan = {100, active};
          const Choice c = *choose(f, plan, machine, {{row}});
          const double share = plan.density();
          const bool same = density_class(share) == density_class(density);
          ASSERT_EQ(c.gate.size(), same ? 1U : 0U);
          if (!same) continue;
          ASSERT_EQ(c.lane, LaneId::xla);
          const bool to_list =
              share < density && share < least && plain != XlaMethod::worklist;
          EXPECT_EQ(c.method, to_list ? XlaMethod::worklist : plain)
              << c.reason;
          EXPECT_EQ(c.reason.ends_with(fmt::format(
                        "; at {} of 100 tiles the worklist", active)),
                    to_list)
              << c.reason;
          ++(to_list ? listed : by_the_row);
        }
      }
    }
  }
  EXPECT_GT(listed, 200);
  EXPECT_GT(by_the_row, 500);
}

// A kernel that was measured to win in no shape class on a machine is not
// chosen there by a prediction for any length, of a row or of a rule.
TEST(Gate, AMeasuredDeleteHoldsPredictionsBack) {
  const AttentionShape shape = {8, 8, 128, 128, {}, 0};
  const RequestFeatures f =
      features("causal & documents", shape, {Dtype::bf16});
  const RequestFeatures other =
      features("causal & documents", shape, {Dtype::bf16}, 64);
  const PlanFacts plan = {100, 55};
  const GateRow ahead = predicted_of(f, 0.6, 1e5, 3e5);
  GateRow measured = row_of(other, tpu_of("v6e"), 0.6, 2, 1);
  measured.kernel = "mosaic/forward";
  measured.lane = LaneId::mosaic;
  measured.verdict = GateVerdict::drop;
  const auto on = [&](const GateTable& gate, const RequestFeatures& asked) {
    return *choose(asked, plan, tpu_of("v6e"), gate);
  };
  EXPECT_EQ(on({{ahead}}, f).lane, LaneId::mosaic);
  EXPECT_EQ(on({}, f).lane, LaneId::mosaic);  // by a rule
  for (const GateTable& gate :
       {GateTable{{ahead, measured}}, GateTable{{measured}}}) {
    const Choice c = on(gate, f);
    EXPECT_EQ(c.lane, LaneId::xla);
    ASSERT_EQ(c.gate.size(), 1U);
    EXPECT_EQ(c.gate.at(0).basis, GateBasis::measured);
    EXPECT_EQ(find(c, LaneId::mosaic)->reason,
              "the gate on this machine: mosaic/forward is delete");
  }
  // A prediction that XLA is ahead still decides XLA's method.
  const GateRow behind = predicted_of(f, 0.6, 3e5, 1e5);
  EXPECT_EQ(on({{behind, measured}}, f).gate.at(0).basis, GateBasis::predicted);
  // The measured row does not apply to the other direction, with another
  // verdict or on another machine.
  const auto but = [&](auto change) {
    GateRow row = measured;
    change(row);
    return on({{ahead, row}}, f).lane;
  };
  EXPECT_EQ(but([](GateRow& r) { r.backward = true; }), LaneId::mosaic);
  EXPECT_EQ(but([](GateRow& r) { r.verdict = GateVerdict::experimental; }),
            LaneId::mosaic);
  EXPECT_EQ(but([](GateRow& r) { r.machine = "B CPU"; }), LaneId::mosaic);
  EXPECT_EQ(
      choose(f, plan, tpu_of("v6e"), {{ahead, measured}}, LaneId::mosaic)->lane,
      LaneId::mosaic);
}

TEST(Gate, VerdictsOfPredictedRows) {
  const auto table = [](int classes, double factor) {
    GateTable out;
    int64_t tokens = 64;
    for (int i = 0; i < classes; ++i) {
      out.rows.push_back(predicted_of(
          features("causal", {8, 8, 128, 128, {}, 0}, {}, tokens *= 2), 0.6,
          1e5, factor * 1e5));
    }
    set_verdicts(out);
    return out;
  };
  EXPECT_EQ(table(3, 1.3).rows[0].verdict, GateVerdict::promote);
  EXPECT_EQ(table(2, 9).rows[0].verdict, GateVerdict::experimental);
  EXPECT_EQ(table(9, 1.25).rows[0].verdict, GateVerdict::drop);
  // Each row has an error bar of its own.
  GateTable wide = table(3, 1.3);
  for (GateRow& row : wide.rows) row.error_bar = 1.4;
  set_verdicts(wide);
  EXPECT_EQ(wide.rows[0].verdict, GateVerdict::drop);
  // One row that was not judged keeps the kernel from being promoted.
  GateTable unjudged = table(9, 3);
  unjudged.rows[4].judgement = GateJudgement::unjudged;
  unjudged.rows[4].error.reset();
  set_verdicts(unjudged);
  EXPECT_EQ(unjudged.rows[0].verdict, GateVerdict::unjudged);
  // A row of another generation counts for another kernel.
  GateTable apart = table(3, 3);
  apart.rows[2].generation = "v5e";
  set_verdicts(apart);
  EXPECT_EQ(apart.rows[0].verdict, GateVerdict::experimental);

  // A wrong predicted row bars the lane on all machines of the generation.
  const AttentionShape shape = {8, 8, 128, 128, {}, 0};
  const RequestFeatures f =
      features("causal & documents", shape, {Dtype::bf16});
  GateRow wrong =
      predicted_of(features("full", shape, {Dtype::f32}, 64), 1, 1, 9);
  wrong.verdict = GateVerdict::wrong;
  const auto barred = choose(f, {100, 30}, tpu_of("v6e"), {{wrong}});
  EXPECT_EQ(barred->lane, LaneId::xla);
  EXPECT_EQ(find(*barred, LaneId::mosaic)->reason,
            "the gate of v6e: mosaic/forward is wrong");
  EXPECT_EQ(barred->gate.at(0).generation, "v6e");
  EXPECT_EQ(choose(f, {100, 30}, tpu_of(""), {{wrong}})->lane, LaneId::mosaic);
}

// A reason names the tile of the kernel that won or lost.
TEST(Gate, AReasonNamesTheTile) {
  const AttentionShape shape = {8, 8, 128, 128, {}, 0};
  const RequestFeatures f = features("causal", shape, {Dtype::bf16});
  const auto told = [&](const GateRow& row) {
    return choose(f, {100, 55}, tpu_of("v6e"), {{row}})->reason;
  };
  GateRow ahead = predicted_of(f, 0.6, 1e5, 3e5);
  ahead.tile = {512, 512};
  EXPECT_NE(told(ahead).find("tokens: mosaic/forward at tiles of 512x512 takes "
                             "100000 cycles and xla's chunked program 300000"),
            std::string::npos)
      << told(ahead);
  GateRow behind = row_of(f, tpu_of("v6e"), 0.6, 2, 1);
  behind.kernel = "mosaic/forward";
  behind.lane = LaneId::mosaic;
  behind.tile = {512, 256};
  EXPECT_TRUE(told(behind).starts_with(
      "measured on this machine at density 0.6: mosaic/forward at tiles of "
      "512x256 took 2.00 times as long as xla's chunked program"))
      << told(behind);
}

TEST(Gate, PredictedRowsGoThroughJson) {
  const RequestFeatures f =
      features("causal", {8, 8, 128, 128, {}, 0}, {Dtype::bf16});
  const std::string json = gate_json({{predicted_of(f, 0.5, 1e5, 2e5)}});
  const auto again = parse_gate(json);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(gate_json(*again), json);
  EXPECT_EQ(again->rows[0].basis, GateBasis::predicted);
  EXPECT_EQ(again->rows[0].error_bar, 1.28);
  // How far the cycles were checked is told anew by each table.
  const auto told = [](std::string_view text, size_t row = 0) {
    return nlohmann::json::parse(text)["rows"][row];
  };
  EXPECT_EQ(told(json)["calibrated"], false);
  EXPECT_EQ(told(json)["calibrated_on"],
            "another kernel's forward passes without documents or softcap");
  auto older = nlohmann::json::parse(json);
  older["rows"][0].erase("calibrated");
  older["rows"][0]["calibrated_on"] = nullptr;
  EXPECT_EQ(gate_json(*parse_gate(older.dump())), json);
  GateRow unknown = again->rows[0];
  unknown.generation = "v5e";
  EXPECT_EQ(told(gate_json({{unknown}}))["calibrated"], false);
  EXPECT_EQ(told(gate_json({{unknown}}))["calibrated_on"], nlohmann::json());
  const auto broken = [&](const std::string& key, const std::string& value,
                          const std::string& other_key = "",
                          const std::string& other = "") {
    auto text = nlohmann::json::parse(json);
    text["rows"][0][key] = nlohmann::json::parse(value);
    if (!other_key.empty()) {
      text["rows"][0][other_key] = nlohmann::json::parse(other);
    }
    const auto r = parse_gate(text.dump());
    return r ? std::string("read") : r.error().message;
  };
  EXPECT_EQ(broken("kernel_cycles", "0"),
            "[gate] kernel_cycles must be a number from 1 to 1e+18, found the "
            "integer 0");
  EXPECT_EQ(broken("plain_cycles", "-3"),
            "[gate] plain_cycles must be a number from 1 to 1e+18, found the "
            "integer -3");
  EXPECT_TRUE(broken("error_bar", "0.9")
                  .starts_with("[gate] error_bar must be a number from 1 to "));
  EXPECT_EQ(broken("error_bar", "null"),
            "[gate] cycles must have an error_bar, and nothing else may, found "
            "none for 'mosaic/forward'");
  EXPECT_EQ(broken("kernel_ms", "1"),
            "[gate] a predicted row must have cycles and no ms, found ms for "
            "'mosaic/forward'");
  EXPECT_EQ(broken("generation", "\"v9\""),
            "[gate] generation must be one of v4, v5e, v5p, v6e, tpu7x, found "
            "'v9'");
  EXPECT_EQ(broken("generation", "null"),
            "[gate] a predicted row must have a generation and no machine, "
            "found no generation for 'mosaic/forward'");
  EXPECT_EQ(broken("machine", "\"A CPU\""),
            "[gate] a predicted row must have a generation and no machine, "
            "found a machine for 'mosaic/forward'");
  EXPECT_EQ(broken("machine", "\"\""),
            "[gate] machine must be null or a text, found an empty one");
  EXPECT_EQ(broken("lane", "\"cpu\"", "kernel", "\"cpu/forward\""),
            "[gate] a predicted row must be of a lane of TPUs, found cpu for "
            "'cpu/forward'");
  EXPECT_EQ(broken("basis", "\"guessed\""),
            "[gate] basis must be a known word, found 'guessed'");
  EXPECT_EQ(broken("basis", "\"measured\""),
            "[gate] a measured row must have a machine and no generation, "
            "found no machine for 'mosaic/forward'");
  EXPECT_EQ(broken("plain_cycles", "1.2e5"),
            "[gate] factor must be plain XLA's figure over the kernel's, null "
            "without them, found other for 'mosaic/forward'");
  EXPECT_EQ(broken("plain_cycles", "null", "factor", "null"),
            "[gate] the kernel's figure and plain XLA's must both be there or "
            "neither, found other for 'mosaic/forward'");
  EXPECT_EQ(broken("plain_cycles", "1.2e5", "factor", "1.2"),
            "[gate] a verdict must be that of all its kernel's rows, delete, "
            "found experimental for 'mosaic/forward'");
  EXPECT_EQ(broken("error", "1.5", "judgement", "\"wrong\""),
            "[gate] what is wrong must have no times and no cycles, found "
            "other for 'mosaic/forward'");
  EXPECT_EQ(broken("verdict", "\"promote\""),
            "[gate] a verdict must be that of all its kernel's rows, "
            "experimental, found promote for 'mosaic/forward'");

  EXPECT_EQ(broken("calibrated", "true"),
            "[gate] calibrated must be false, found true for "
            "'mosaic/forward'");
  EXPECT_EQ(broken("calibrated_on", "7"),
            "[gate] calibrated_on must be a string, found the integer 7 for "
            "it");

  const Machine cpu{"A CPU", 8, {Isa::portable}, true, true, {}};
  auto measured =
      nlohmann::json::parse(gate_json({{row_of(f, cpu, 0.5, 1, 2)}}));
  EXPECT_FALSE(measured["rows"][0].contains("calibrated"));
  const auto also = [&](const char* key, double value) {
    auto text = measured;
    text["rows"][0][key] = value;
    return parse_gate(text.dump()).error().message;
  };
  EXPECT_EQ(also("error_bar", 1.28),
            "[gate] a measured row must have no cycles and no error_bar, found "
            "an error_bar for 'cpu/forward'");
  EXPECT_EQ(also("kernel_cycles", 9),
            "[gate] a measured row must have no cycles and no error_bar, found "
            "cycles for 'cpu/forward'");
  EXPECT_EQ(also("calibrated", 1),
            "[gate] a measured row must have no calibrated, found the float "
            "1.0 for 'cpu/forward'");
}

TEST(Gate, RecordedTablesAreRead) {
  int read = 0;
  for (const auto& folder :
       std::filesystem::directory_iterator("bench/results")) {
    const std::string path = folder.path() / "gate.json";
    if (!std::filesystem::exists(path)) continue;
    const auto table = parse_gate(*read_file(path, 1 << 24));
    ASSERT_TRUE(table.ok()) << path << ": " << table.error().message;
    EXPECT_FALSE(table->rows.empty());
    for (const GateRow& row : table->rows) {
      EXPECT_TRUE(row.tile || !row.factor) << path << ": " << row.kernel;
    }
    ++read;
  }
  EXPECT_GE(read, 1);
}

TEST(Gate, DensityClassesHalve) {
  EXPECT_EQ(density_class(1), 0);  // alone: it skips nothing
  EXPECT_EQ(density_class(1023.0 / 1024), 1);
  EXPECT_EQ(density_class(0.51), 1);
  EXPECT_EQ(density_class(0.5), 2);
  EXPECT_EQ(density_class(0.26), 2);
  EXPECT_EQ(density_class(0.25), 3);
  EXPECT_EQ(density_class(1e-9), 11);
  EXPECT_EQ(density_class(0), 11);
}

TEST(Lanes, HaveNamesAndFamilies) {
  for (const LaneFacts& lane : lane_registry()) {
    EXPECT_EQ(*parse_lane(to_string(lane.lane)), lane.lane);
    EXPECT_EQ(facts_of(lane.lane).about, lane.about);
  }
  EXPECT_EQ(parse_lane("gpu").error().message,
            "[dispatch] a lane must be one of cpu, xla, mosaic, jax_bridge, "
            "splash, cuda, reference, found 'gpu'");
  EXPECT_EQ(lane_family(LaneId::cpu, ""), "native");
  EXPECT_EQ(lane_family(LaneId::reference, ""), "reference");
  EXPECT_EQ(lane_family(LaneId::xla, "cpu"), "xla");
  EXPECT_EQ(lane_family(LaneId::xla, "tpu"), "tpu/xla");
  EXPECT_EQ(lane_family(LaneId::xla, "cuda"), "cuda");
  EXPECT_EQ(lane_family(LaneId::jax_bridge, "cpu"), "tpu/jax");
  EXPECT_EQ(lane_family(LaneId::splash, "cpu"), "tpu/splash");
  EXPECT_EQ(lane_family(LaneId::mosaic, "tpu"), "tpu/mosaic");
  EXPECT_EQ(lane_family(LaneId::cuda, "cuda"), "cuda");
}

// A mesh goes by the rows of one device, among the lanes that run on a mesh.
TEST(Choose, AMeshGoesByTheSameRules) {
  const std::vector<Isa> isas = {Isa::portable, Isa::avx2};
  const auto machine = [&](std::vector<MachinePlugin> plugins) {
    return Machine{"A CPU", 8, isas, true, true, std::move(plugins)};
  };
  const MachinePlugin cpu = {"xla_cpu_pjrt", "cpu", 1};
  const auto tpus = [](int64_t n) {
    return MachinePlugin{"libtpu", "tpu", n, "v6e"};
  };
  const AttentionShape shape = {8, 8, 128, 128, {}, 0};
  CallFeatures call;
  call.dtype = Dtype::bf16;
  call.devices = 4;
  const RequestFeatures packed = features("causal & documents", shape, call);
  const std::string applied =
      "; the row is of one device, applied to a mesh of 4";

  auto choice = choose(packed, {100, 30}, machine({cpu, tpus(4)}));
  ASSERT_TRUE(choice) << choice.error().message;
  EXPECT_EQ(choice->lane, LaneId::mosaic);
  EXPECT_EQ(choice->plugin, "libtpu");
  ASSERT_TRUE(choice->rule);
  EXPECT_EQ(choice->rule->name, "tpu kernels");
  EXPECT_TRUE(choice->reason.ends_with(applied)) << choice->reason;
  EXPECT_EQ(find(*choice, LaneId::cpu)->reason,
            "it runs on one device, not on a mesh of 4");

  // A dtype that our kernel does not have goes to xla's worklist.
  call.dtype = Dtype::f16;
  choice = choose(features("causal & documents", shape, call), {100, 95},
                  machine({tpus(4)}));
  ASSERT_TRUE(choice) << choice.error().message;
  EXPECT_EQ(choice->lane, LaneId::xla);
  EXPECT_EQ(choice->method, XlaMethod::worklist);
  EXPECT_TRUE(choice->reason.ends_with(
      "; on a mesh xla has its worklist alone" + applied))
      << choice->reason;
  call.dtype = Dtype::bf16;
  choice =
      choose(features("causal", shape, call), {100, 55}, machine({tpus(4)}));
  ASSERT_TRUE(choice) << choice.error().message;
  EXPECT_EQ(choice->lane, LaneId::xla);
  EXPECT_EQ(choice->rule->name, "plain causal");

  // If there are too few TPUs, no CPU is used instead.
  choice = choose(packed, {100, 30}, machine({cpu, tpus(2)}));
  ASSERT_FALSE(choice);
  EXPECT_NE(choice.error().message.find(
                "mosaic: libtpu has 2 devices, and the mesh 4"),
            std::string::npos)
      << choice.error().message;
  EXPECT_NE(choice.error().message.find("xla: libtpu has 2 devices, and the "
                                        "mesh 4"),
            std::string::npos)
      << choice.error().message;
  // A CPU plugin makes as many devices as the mesh has.
  choice = choose(packed, {100, 30}, machine({cpu}));
  ASSERT_TRUE(choice) << choice.error().message;
  EXPECT_EQ(choice->lane, LaneId::xla);
  EXPECT_EQ(choice->plugin, "xla_cpu_pjrt");
  EXPECT_EQ(choice->method, XlaMethod::worklist);
  // Of several CPU plugins a mesh takes the default one.
  const MachinePlugin other = {"lammps_jax_pjrt_cpu", "cpu", 1};
  const Machine both = machine({cpu, other});
  choice = choose(packed, {100, 30}, both);
  ASSERT_TRUE(choice) << choice.error().message;
  EXPECT_EQ(choice->plugin, other.name);
  call.devices = 1;
  choice = choose(features("causal & documents", shape, call), {100, 30}, both,
                  {}, LaneId::xla);
  ASSERT_TRUE(choice) << choice.error().message;
  EXPECT_EQ(choice->plugin, cpu.name);
}

}  // namespace
}  // namespace tessera::run
