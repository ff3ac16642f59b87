// run/rules.cc: the table of thresholds and the rules that read it. Pure.
#include "run/rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "schedule/chip.h"

namespace tessera {
namespace {

// In the order in which they are asked; of one lane the longer lengths first.
// Each source is a file of figures; docs/dispatch.md says how they were read.
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
     .beyond_tokens = 512,
     .below_density = 1,
     .source = "predicted, bench/results/v6e/dispatch.json: a tie with the "
               "dense program at 512 tokens, ahead at 1,024",
     .generation = "v6e"},
    {.name = "tpu worklist, long",
     .lane = LaneId::xla,
     .platform = "tpu",
     .beyond_tokens = 4096,
     .below_density = 0.88,
     .source = "predicted, bench/results/v6e/dispatch.json: where the worklist "
               "costs what chunked does at 8,192 tokens, backward",
     .generation = "v6e"},
    {.name = "tpu worklist",
     .lane = LaneId::xla,
     .platform = "tpu",
     .beyond_tokens = 512,
     .below_density = 0.61,
     .source = "predicted, bench/results/v6e/dispatch.json: where the worklist "
               "costs what dense does at 1,024 tokens, backward; at 512 tokens "
               "that is at 0.45",
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
    {.name = "cpu last",
     .lane = LaneId::cpu,
     .source = "no figure: it runs what no lane of the device can"},
};

// What a request runs on, as sources of rows are called.
std::string place_of(const Machine& m) {
  const MachinePlugin* device = run::first_device(m);
  if (!device) return m.cpu.empty() ? "a CPU that is not known" : m.cpu;
  if (device->platform != "tpu") return device->platform;
  return device->generation.empty() ? "a TPU whose generation is not known"
                                    : device->generation;
}

// How far predictions of a row's source are known.
std::string known_words(const DispatchRule& rule) {
  if (!rule.source.starts_with("predicted")) return {};
  const auto chip = schedule::find_chip(rule.generation);
  if (!chip || !chip->calibrated) return "; predicted, not calibrated";
  return fmt::format("; predicted, known of {}", schedule::kCalibratedOn);
}

// What is said where that is not of the row's source.
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

bool skips_enough(const DispatchRule& rule, const PlanFacts& plan) {
  return !rule.below_density || plan.density() < *rule.below_density;
}

const DispatchRule& rule_named(std::string_view name) {
  return *std::ranges::find(kRules, name, &DispatchRule::name);
}

// Of the lane on the platform, the row for so many tokens: the last where they
// are too few for any.
const DispatchRule& rule_for(LaneId lane, std::string_view platform,
                             const RequestFeatures& f) {
  const DispatchRule* out = nullptr;
  for (const DispatchRule& rule : kRules) {
    if (rule.lane != lane || rule.name == "plain causal") continue;
    if (!rule.platform.empty() && rule.platform != platform) continue;
    if (out && rule.platform != out->platform) break;
    out = &rule;
    if (is_long(rule, f)) break;
  }
  return *out;
}

std::string tiles(const PlanFacts& plan) {
  return fmt::format("{} of {} tiles are active", plan.active, plan.tiles);
}

std::string short_words(const DispatchRule& rule, const RequestFeatures& f) {
  return fmt::format(
      "{} tokens are not beyond {}: the compiler's own program, "
      "all scores at a time",
      tokens_of(f), rule.beyond_tokens);
}

run::Candidate causal(const RequestFeatures& f) {
  const DispatchRule& rule = rule_named("plain causal");
  return {
      LaneId::xla, run::stable_method(f),
      is_long(rule, f)
          ? "plain causal goes to the stable kernel: the compiler's "
            "loop over the worklist"
          : "plain causal goes to the stable kernel: " + short_words(rule, f),
      &rule};
}

run::Candidate xla_by_density(const RequestFeatures& f, const PlanFacts& plan,
                              std::string_view platform) {
  const DispatchRule& rule = rule_for(LaneId::xla, platform, f);
  if (!is_long(rule, f)) {
    return {LaneId::xla, XlaMethod::dense, short_words(rule, f), &rule};
  }
  if (skips_enough(rule, plan)) {
    return {LaneId::xla, XlaMethod::worklist,
            fmt::format("{}, which is below {} of them: xla's loop over the "
                        "worklist",
                        tiles(plan), *rule.below_density),
            &rule};
  }
  const bool few = tokens_of(f) <= run::kDenseTokens;
  return {
      LaneId::xla, few ? XlaMethod::dense : XlaMethod::chunked,
      fmt::format("{}, not below {} of them: the compiler's own program, {}",
                  tiles(plan), *rule.below_density,
                  few ? "all scores at a time" : "an online softmax"),
      &rule};
}

run::Candidate on_xla(const RequestFeatures& f, const PlanFacts& plan,
                      std::string_view platform) {
  return f.request_class == RequestClass::plain_causal
             ? causal(f)
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
    // Rows without a platform are candidates of their own, before and after.
    if (plain || rule.lane == LaneId::xla || rule.platform.empty() ||
        rule.platform != device.platform) {
      continue;
    }
    if (!is_long(rule, f) || !skips_enough(rule, plan)) continue;
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

XlaMethod run::stable_method(const RequestFeatures& f) {
  return is_long(rule_named("plain causal"), f) ? XlaMethod::worklist
                                                : XlaMethod::dense;
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
