// schedule/program.cc: profiles each kernel, then gives it its trips.
#include "schedule/program.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "tessera/batch.h"

namespace tessera::schedule {
namespace {

constexpr Tile kExactTile{256, 256};

Result<BorrowedBatch> batch_at(const ScheduleOptions& options, Tile tile) {
  Request request = *options.request;
  request.tile = tile;
  request.logical_block = {0, 0};
  request.ceilings = {};
  return BorrowedBatch::make(std::move(request), options.facts);
}

// Profiles each kernel, without trips.
Result<std::vector<KernelProfile>> profiles_of(std::vector<KernelText> kernels,
                                               const Chip& chip) {
  std::vector<KernelProfile> out;
  for (KernelText& text : kernels) {
    const std::string name = text.name;
    auto profile = profile_kernel(std::move(text), chip);
    if (!profile) {
      return Error{profile.error().kind,
                   fmt::format("{} of kernel {}", profile.error().message,
                               in_quotes(name))};
    }
    out.push_back(std::move(*profile));
  }
  return out;
}

// If two rules match a region, the last one applies.
Result<std::vector<TripRule>> rules_of(
    const ScheduleOptions& options,
    const std::vector<KernelProfile>& profiles) {
  if (auto e = check_rules(profiles, options.rules); !e) return e.error();
  std::vector<TripRule> out;
  for (const TripRule& rule : options.known) {
    if (check_rules(profiles, {&rule, 1})) out.push_back(rule);
  }
  out.insert(out.end(), options.rules.begin(), options.rules.end());
  return out;
}

Result<KernelReport> report_kernel(KernelProfile profile,
                                   const ScheduleOptions& options,
                                   const Chip& chip,
                                   const std::vector<TripRule>& rules) {
  KernelReport k;
  if (options.request && profile.text.opcode == "custom-call") {
    k.block = kernel_blocks(profile.text, options.request->q_len,
                            options.request->kv_len);
    if (k.block) {
      auto batch = batch_at(options, *k.block);
      if (!batch) return batch.error();
      k.counts = count_plan(batch->plan());
    }
  }
  auto prediction = predict(profile, chip, rules, k.counts);
  if (!prediction) return prediction.error();
  k.prediction = std::move(*prediction);
  k.profile = std::move(profile);
  return k;
}

std::vector<std::string> names_of(const Dump& dump) {
  std::vector<std::string> out;
  for (const KernelText& text : dump.kernels) out.push_back(text.name);
  return out;
}

// Finds the kernel that a call runs: one with its name, or one with the same
// code.
class Called {
 public:
  Called(const Dump& dump, const std::vector<std::string>& names) {
    for (size_t k = 0; k < names.size(); ++k) by_name_.emplace(names[k], k);
    add(dump.calls);
    for (const auto& [name, calls] : dump.bodies) add(calls);
  }

  std::optional<size_t> kernel(const HloCall& call) const {
    for (const auto& [known, word] : {std::pair(&by_name_, &call.name),
                                      {&by_signature_, &call.signature}}) {
      const auto found = known->find(*word);
      if (found != known->end()) return found->second;
    }
    return {};
  }

 private:
  void add(const std::vector<HloCall>& calls) {
    for (const HloCall& call : calls) {
      const auto named = by_name_.find(call.name);
      if (named != by_name_.end()) {
        by_signature_.emplace(call.signature, named->second);
      }
    }
  }

  std::unordered_map<std::string, size_t> by_name_, by_signature_;
};

std::vector<std::optional<size_t>> kernels_called(
    const std::vector<HloCall>& calls, const Called& called) {
  std::vector<std::optional<size_t>> out;
  out.reserve(calls.size());
  for (const HloCall& call : calls) out.push_back(called.kernel(call));
  return out;
}

// The fewest cycles of an op: a kernel, or a loop that runs once.
class OpCycles {
 public:
  OpCycles(const HloBodies& bodies, const Called& called,
           const std::vector<KernelReport>& kernels)
      : bodies_(bodies), called_(called), kernels_(kernels) {}

  std::optional<double> of(const HloCall& call, int depth = 0) const {
    constexpr int kMaxDepth = 8;  // nesting of loops
    if (const auto k = called_.kernel(call)) {
      return kernels_[*k].prediction.cycles_loops_once;
    }
    const auto body = bodies_.find(call.body);
    if (call.opcode != "while" || body == bodies_.end()) return {};
    double out = 0;
    for (const HloCall& inner : body->second) {
      if (depth < kMaxDepth) out += of(inner, depth + 1).value_or(0);
    }
    return out;
  }

 private:
  const HloBodies& bodies_;
  const Called& called_;
  const std::vector<KernelReport>& kernels_;
};

// Cycles of copies that are not hidden. A kernel's idle HBM time hides copies
// that are under way.
double exposed_copies(const std::vector<HloCall>& calls,
                      const std::vector<std::optional<size_t>>& called,
                      const ScheduleReport& report) {
  std::vector<double> idle(calls.size());
  for (size_t c = 0; c < calls.size(); ++c) {
    if (!called[c]) continue;
    const Prediction& p = report.kernels[*called[c]].prediction;
    double memory = 0;
    for (const RegionTime& t : p.regions) memory += t.memory_cycles;
    idle[c] = std::max(0.0, p.cycles_loops_once - memory);
  }
  double out = 0;
  for (size_t start = 0; start < calls.size(); ++start) {
    double left = static_cast<double>(calls[start].bytes) /
                  report.chip.hbm_bytes_per_cycle;
    for (size_t c = start + 1; c < calls.size() && left > 0; ++c) {
      if (calls[c].opcode == "copy-done" && !calls[c].operands.empty() &&
          calls[c].operands[0] == calls[start].name) {
        break;
      }
      const double hidden = std::min(left, idle[c]);
      left -= hidden;
      idle[c] -= hidden;
    }
    out += left;
  }
  return out;
}

void count_calls(const std::vector<HloCall>& calls,
                 const std::vector<std::optional<size_t>>& called,
                 std::vector<KernelReport>& kernels) {
  std::vector<int64_t> counts(kernels.size());
  for (size_t c = 0; c < calls.size(); ++c) {
    if (called[c]) ++counts[*called[c]];
  }
  // A kernel that the entry does not call is called by one of its bodies.
  for (size_t k = 0; k < kernels.size(); ++k) {
    kernels[k].calls = std::max<int64_t>(counts[k], 1);
  }
}

void add_kernel(const KernelReport& k, ScheduleReport& out) {
  const auto calls = static_cast<double>(k.calls);
  const auto& cycles = k.prediction.cycles;
  if (!cycles) out.cycles.reset();
  if (out.cycles) *out.cycles += calls * *cycles;
  out.cycles_loops_once += calls * k.prediction.cycles_loops_once;
  if (k.prediction.attention) {
    out.heads = std::max(out.heads, k.prediction.heads);
    if (cycles) {
      out.attention_cycles = out.attention_cycles.value_or(0) + calls * *cycles;
    }
  }
}

// With several lists, the grid of an unknown kernel cannot be matched.
Result<void> check_one_list(const Plan& plan) {
  if (plan.batch == 1 && plan.heads == 1) return {};
  return invalid(
      "schedule",
      "beside a program the plan must be of one batch row and one "
      "plan head, found {} and {} (without a plan, --trips REGION=N)",
      plan.batch, plan.heads);
}

}  // namespace

std::optional<double> ScheduleReport::cycles_per_tile() const {
  const auto& of = attention_cycles ? attention_cycles : cycles;
  if (!of || !exact_tiles || *exact_tiles == 0 || heads == 0) {
    return {};
  }
  return *of / *exact_tiles / static_cast<double>(heads);
}

Result<ScheduleReport> make_schedule(Dump dump,
                                     const ScheduleOptions& options) {
  auto chip = find_chip(options.target);
  if (!chip) return chip.error();
  ScheduleReport out;
  out.chip = *chip;
  out.target = options.target;
  if (options.request) {
    auto exact = batch_at(options, kExactTile);
    if (!exact) return exact.error();
    const Plan& plan = exact->plan();
    if (options.known.empty()) {
      if (auto e = check_one_list(plan); !e) return e.error();
    }
    out.exact_tiles = static_cast<double>(count_plan(plan).steps) /
                      static_cast<double>(plan.forward.lists);
  }
  const std::vector<std::string> names = names_of(dump);
  auto profiles = profiles_of(std::move(dump.kernels), *chip);
  if (!profiles) return profiles.error();
  auto rules = rules_of(options, *profiles);
  if (!rules) return rules.error();
  out.follows_plan = !options.known.empty();
  out.cycles = 0;
  const Called kernel_of(dump, names);
  const auto called = kernels_called(dump.calls, kernel_of);
  for (KernelProfile& profile : *profiles) {
    auto kernel = report_kernel(std::move(profile), options, *chip, *rules);
    if (!kernel) return kernel.error();
    out.kernels.push_back(std::move(*kernel));
  }
  count_calls(dump.calls, called, out.kernels);
  for (const KernelReport& k : out.kernels) add_kernel(k, out);
  out.copy_cycles = exposed_copies(dump.calls, called, out);
  if (out.cycles) *out.cycles += out.copy_cycles;
  out.cycles_loops_once += out.copy_cycles;
  const OpCycles cycles(dump.bodies, kernel_of, out.kernels);
  out.collectives =
      find_collectives(dump.calls, dump.bodies,
                       [&](const HloCall& call) { return cycles.of(call); });
  if (options.heads) out.heads = *options.heads;
  return out;
}

std::vector<KernelText> kernels_of_label(const Dump& dump,
                                         std::string_view label) {
  const Called called(dump, names_of(dump));
  std::set<size_t> found;
  const auto add = [&](const std::vector<HloCall>& calls) {
    for (const HloCall& call : calls) {
      if (!has_label(call.name, label)) continue;
      if (const auto k = called.kernel(call)) found.insert(*k);
    }
  };
  add(dump.calls);
  for (const auto& [name, calls] : dump.bodies) add(calls);
  for (size_t k = 0; k < dump.kernels.size(); ++k) {
    if (has_label(dump.kernels[k].name, label)) found.insert(k);
  }
  std::vector<KernelText> out;
  out.reserve(found.size());
  for (const size_t k : found) out.push_back(dump.kernels[k]);
  return out;
}

}  // namespace tessera::schedule
