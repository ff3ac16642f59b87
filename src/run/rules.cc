// run/rules.cc: the table of thresholds and the rules that read it. Pure.
#include "run/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/integers.h"
#include "schedule/chip.h"
#include "tessera/batch.h"

namespace tessera {
namespace {

// Rows in the order in which they are tried; of one lane, larger thresholds of
// length come first. Most sources name a file of figures; docs/dispatch.md says
// how the figures were read.
constexpr DispatchRule kRules[] = {
    {.name = "cpu kernels",
     .lane = LaneId::cpu,
     .platform = "cpu",
     .source = "measured, bench/results/amd-epyc/gate.json: ahead of plain XLA "
               "in all rows, from 3% to 100% of the tiles",
     .cpu = "AMD EPYC"},
    {.name = "splash given",
     .lane = LaneId::splash,
     .source = "no figure: who gives Splash's kernel for plain causal means it "
               "to run; a row of a gate goes before it"},
    {.name = "artifact given",
     .lane = LaneId::jax_bridge,
     .source = "no figure: who gives an artifact for plain causal means it to "
               "run; a row of a gate goes before it"},
    {.name = "plain causal",
     .lane = LaneId::xla,
     .beyond_tokens = 1024,
     .source = "predicted, bench/results/v6e/dispatch.json: the worklist ties "
               "the dense program at 1,024 tokens, which takes 1.7 times as "
               "long at 2,048, forward; it holds a tile of scores where "
               "chunked holds a column",
     .generation = "v6e"},
    {.name = "tpu kernels",
     .lane = LaneId::mosaic,
     .platform = "tpu",
     .beyond_tokens = 256,
     .below_density = 1,
     .source = "predicted, bench/results/v6e/dispatch.json: at 512 tokens the "
               "dense program takes 1.68 times as long forward, 1.41 times "
               "with gradients; 256 are one tile",
     .generation = "v6e"},
    // 6,145 to 8,192 tokens are one bucket, so they share one program.
    {.name = "tpu worklist, long, forward",
     .lane = LaneId::xla,
     .platform = "tpu",
     .direction = "forward",
     .beyond_tokens = 6144,
     .source = "predicted, bench/results/v6e/dispatch.json: at 8,192 tokens "
               "chunked takes 1.76 times as long as the worklist over all "
               "tiles",
     .generation = "v6e"},
    {.name = "tpu worklist, forward",
     .lane = LaneId::xla,
     .platform = "tpu",
     .direction = "forward",
     .beyond_tokens = 256,
     .below_density = 0.62,
     .source = "predicted, bench/results/v6e/dispatch.json: where the worklist "
               "costs what dense does at 1,024 tokens; 256 are one tile",
     .generation = "v6e"},
    {.name = "tpu worklist, long, backward",
     .lane = LaneId::xla,
     .platform = "tpu",
     .direction = "backward",
     .beyond_tokens = 6144,
     .below_density = 1,
     .source = "predicted, bench/results/v6e/dispatch.json: at 8,192 tokens "
               "chunked takes 1.16 times as long as the worklist over all "
               "tiles, both passes: a tie, in which a plan that skips nothing "
               "stays with chunked",
     .generation = "v6e"},
    {.name = "tpu worklist, backward",
     .lane = LaneId::xla,
     .platform = "tpu",
     .direction = "backward",
     .beyond_tokens = 512,
     .below_density = 0.61,
     .source = "predicted, bench/results/v6e/dispatch.json: where the worklist "
               "costs what dense does at 1,024 tokens, both passes; at 512 "
               "tokens that is at 0.53",
     .generation = "v6e"},
    {.name = "worklist",
     .lane = LaneId::xla,
     .beyond_tokens = 1024,
     .below_density = 0.67,
     .source = "measured, bench/results/amd-epyc/xla.json: where the worklist "
               "takes as long as chunked on a CPU, float32 forward, 8,192 "
               "tokens; of the length nothing was measured, and it is plain "
               "causal's",
     .cpu = "AMD EPYC"},
    {.name = "dense, few tokens",
     .lane = LaneId::xla,
     .up_to_tokens = 1024,
     .source = "predicted, bench/results/v6e/dispatch.json: at 1,024 tokens "
               "chunked takes 1.43 times as long as all scores at a time, "
               "both passes 1.25 times; at 2,048 they tie, and chunked holds "
               "less",
     .generation = "v6e"},
    {.name = "cpu last",
     .lane = LaneId::cpu,
     .source = "no figure: it runs what no lane of the device can"},
};

// What a request runs on, named as rows name their sources.
std::string place_of(const Machine& m) {
  const MachinePlugin* device = run::first_device(m);
  if (!device) return m.cpu.empty() ? "a CPU that is not known" : m.cpu;
  if (device->platform != "tpu") return device->platform;
  return device->generation.empty() ? "a TPU whose generation is not known"
                                    : device->generation;
}

// How far the row's predictions were checked; empty if it is not predicted.
std::string known_words(const DispatchRule& rule) {
  if (!run::is_predicted(rule)) return {};
  return "; predicted, " + schedule::known_words(rule.generation);
}

// Says that the row's source is about another machine; empty if it is not.
std::string borrowed_words(const DispatchRule& rule, const Machine& m) {
  const std::string_view from =
      rule.generation.empty() ? rule.cpu : rule.generation;
  const std::string place = place_of(m);
  if (from.empty() || from == place) return {};
  return fmt::format("; the threshold is borrowed from {}, applied to {}", from,
                     place);
}

int64_t tokens_of(const RequestFeatures& f) {
  return std::max(f.q_len, f.kv_len);
}

bool is_long(const DispatchRule& rule, const RequestFeatures& f) {
  return tokens_of(f) > rule.beyond_tokens;
}

bool is_whole(const PlanFacts& plan) { return plan.density() >= 1; }

// The length that a worklist row is compared with. If nothing is skipped it is
// q_len: chunked falls behind by the scores it holds, all queries by a tile's
// keys.
int64_t list_tokens(const RequestFeatures& f, const PlanFacts& plan) {
  return is_whole(plan) ? f.q_len : tokens_of(f);
}

bool skips_enough(const DispatchRule& rule, const PlanFacts& plan) {
  return !rule.below_density || plan.density() < *rule.below_density;
}

const DispatchRule& rule_named(std::string_view name) {
  return *std::ranges::find(kRules, name, &DispatchRule::name);
}

bool is_of_call(const DispatchRule& rule, const RequestFeatures& f) {
  return rule.direction.empty() ||
         rule.direction == (f.call.backward ? "backward" : "forward");
}

// Whether the row is about xla's worklist for any mask. Other rows of xla have
// neither a platform nor a share.
bool is_list(const DispatchRule& rule) {
  return rule.lane == LaneId::xla &&
         (!rule.platform.empty() || rule.below_density);
}

// The worklist row for this platform and direction. Rows of the platform come
// before the general one, larger thresholds first; if `tokens` is above none of
// their thresholds, the last of them is returned.
const DispatchRule& worklist_rule(std::string_view platform,
                                  const RequestFeatures& f, int64_t tokens) {
  const DispatchRule* out = nullptr;
  for (const DispatchRule& rule : kRules) {
    if (!is_list(rule)) continue;
    if (!rule.platform.empty() && rule.platform != platform) continue;
    if (!is_of_call(rule, f)) continue;
    if (out && rule.platform != out->platform) break;
    out = &rule;
    if (tokens > rule.beyond_tokens) break;
  }
  return *out;
}

std::string tiles(const PlanFacts& plan) {
  return fmt::format("{} of {} tiles are active", plan.active, plan.tiles);
}

std::string share_words(const DispatchRule& rule) {
  return *rule.below_density < 1
             ? fmt::format("{} of them", *rule.below_density)
             : "all of them";
}

std::string list_words(const DispatchRule& rule, const PlanFacts& plan,
                       int64_t tokens) {
  if (rule.below_density) return "which is below " + share_words(rule);
  return fmt::format("and {} {} are beyond {}", tokens,
                     is_whole(plan) ? "queries" : "tokens", rule.beyond_tokens);
}

std::string short_words(const DispatchRule& rule, const RequestFeatures& f) {
  return fmt::format("{} tokens are not beyond {}", tokens_of(f),
                     rule.beyond_tokens);
}

constexpr std::string_view kAllAtATime =
    ": the compiler's own program, all scores at a time";

run::Candidate xla_by_density(const RequestFeatures& f, const PlanFacts& plan,
                              std::string_view platform) {
  const int64_t tokens = list_tokens(f, plan);
  const DispatchRule& list = worklist_rule(platform, f, tokens);
  const bool enough = skips_enough(list, plan);
  if (tokens > list.beyond_tokens && enough) {
    return {LaneId::xla, XlaMethod::worklist,
            fmt::format("{}, {}: xla's loop over the worklist", tiles(plan),
                        list_words(list, plan, tokens)),
            &list};
  }
  const DispatchRule& dense = rule_named("dense, few tokens");
  const bool few = tokens_of(f) <= dense.up_to_tokens;
  std::string why =
      enough ? short_words(list, f)
             : fmt::format("{}, not below {}", tiles(plan), share_words(list));
  if (!few) {
    why += ": the compiler's own program, an online softmax";
    return {LaneId::xla, XlaMethod::chunked, std::move(why), &list};
  }
  if (!enough) {
    why += fmt::format(", and {} tokens are not beyond {}", tokens_of(f),
                       dense.up_to_tokens);
  }
  why += kAllAtATime;
  return {LaneId::xla, XlaMethod::dense, std::move(why), &dense};
}

// Scores of one head that chunked holds: all queries, rounded up as programs
// round them, by a tile's keys.
int64_t column_scores(const RequestFeatures& f) {
  return round_up(bucket(f.q_len), f.tile.q) * f.tile.kv;
}

// Plain causal goes by its density like any request if it is short and skips
// enough for the worklist, or if it skips nothing and chunked holds no more
// scores than dense ever does. Else a short request goes to dense, and a long
// one to the worklist, which holds one tile of scores.
run::Candidate causal(const RequestFeatures& f, const PlanFacts& plan,
                      std::string_view platform) {
  const DispatchRule& rule = rule_named("plain causal");
  const std::string stable = "plain causal goes to the stable kernel: ";
  run::Candidate by_plan = xla_by_density(f, plan, platform);
  if (!is_long(rule, f)) {
    if (by_plan.method == XlaMethod::worklist) {
      by_plan.reason = stable + by_plan.reason;
      return by_plan;
    }
    return {LaneId::xla, XlaMethod::dense,
            fmt::format("{}{}{}", stable, short_words(rule, f), kAllAtATime),
            &rule};
  }
  const int64_t side = rule_named("dense, few tokens").up_to_tokens;
  const int64_t most = side * side;
  const bool whole = is_whole(plan);
  if (whole && column_scores(f) <= most) {
    by_plan.reason = "plain causal that skips nothing goes as the full mask: " +
                     by_plan.reason;
    return by_plan;
  }
  std::string reason = stable + "the compiler's loop over the worklist";
  if (whole) {
    reason += fmt::format(
        "; nothing is skipped, but chunked would hold {} scores a head at a "
        "time, more than {}",
        column_scores(f), most);
  }
  return {LaneId::xla, XlaMethod::worklist, std::move(reason), &rule};
}

run::Candidate on_xla(const RequestFeatures& f, const PlanFacts& plan,
                      std::string_view platform) {
  return f.request_class == RequestClass::plain_causal
             ? causal(f, plan, platform)
             : xla_by_density(f, plan, platform);
}

std::vector<run::Candidate> on_cpu(const RequestFeatures& f,
                                   const PlanFacts& plan) {
  run::Candidate fallback = on_xla(f, plan, "cpu");
  fallback.reason = "the cpu lane cannot run it; " + fallback.reason;
  return {{LaneId::cpu,
           {},
           "the only device is a CPU, where the cpu lane is ahead at every "
           "density that was measured",
           &rule_named("cpu kernels")},
          std::move(fallback)};
}

std::vector<run::Candidate> on_device(const RequestFeatures& f,
                                      const PlanFacts& plan,
                                      const MachinePlugin& device) {
  std::vector<run::Candidate> out;
  const bool plain = f.request_class == RequestClass::plain_causal;
  if (plain && f.call.splash) {
    out.push_back({LaneId::splash,
                   {},
                   "plain causal goes to the stable kernel: the Splash kernel "
                   "that was given",
                   &rule_named("splash given")});
  }
  if (plain && f.call.bridge_artifact) {
    out.push_back({LaneId::jax_bridge,
                   {},
                   "plain causal goes to the stable kernel: the artifact that "
                   "was given",
                   &rule_named("artifact given")});
  }
  for (const DispatchRule& rule : kRules) {
    // Rows without a platform are added before and after this loop.
    if (plain || rule.lane == LaneId::xla || rule.platform.empty() ||
        rule.platform != device.platform) {
      continue;
    }
    if (!is_of_call(rule, f) || !is_long(rule, f) ||
        !skips_enough(rule, plan)) {
      continue;
    }
    out.push_back({rule.lane,
                   {},
                   fmt::format("{}, and {} tokens are beyond {}: on {} the {} "
                               "lane, which visits these alone",
                               tiles(plan), tokens_of(f), rule.beyond_tokens,
                               device.platform, to_string(rule.lane)),
                   &rule});
  }
  out.push_back(on_xla(f, plan, device.platform));
  out.push_back({LaneId::cpu,
                 {},
                 "no lane of the device can run it",
                 &rule_named("cpu last")});
  return out;
}

}  // namespace

std::span<const DispatchRule> dispatch_rules() { return kRules; }

std::string source_words(const DispatchRule& rule, const Machine& machine) {
  return fmt::format("{}{}{}", rule.source, known_words(rule),
                     borrowed_words(rule, machine));
}

bool run::is_device(const MachinePlugin& p) {
  return p.platform != "cpu" && p.devices > 0;
}

const MachinePlugin* run::first_device(const Machine& m) {
  const auto at = std::ranges::find_if(m.plugins, is_device);
  return at == m.plugins.end() ? nullptr : &*at;
}

bool run::is_predicted(const DispatchRule& rule) {
  return rule.source.starts_with("predicted");
}

XlaMethod run::xla_method(const RequestFeatures& f, const PlanFacts& plan,
                          const Machine& m) {
  const MachinePlugin* device = first_device(m);
  return on_xla(f, plan, device ? device->platform : "cpu").method;
}

std::vector<run::Candidate> run::by_rule(const RequestFeatures& f,
                                         const PlanFacts& plan,
                                         const Machine& m) {
  if (f.call.compile_only) {
    return {{LaneId::mosaic, {}, "it is what compiles ahead of time"}};
  }
  const MachinePlugin* device = first_device(m);
  std::vector<Candidate> out =
      device ? on_device(f, plan, *device) : on_cpu(f, plan);
  for (Candidate& c : out) {
    c.reason += known_words(*c.rule) + borrowed_words(*c.rule, m);
  }
  return out;
}

}  // namespace tessera
