// schedule/program.cc: profiles each kernel, then gives it its trips.
#include "schedule/program.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "tessera/batch.h"

namespace tessera {
namespace {

constexpr Tile kExactTile{256, 256};

Result<BorrowedBatch> batch_at(const ScheduleAsk& ask, Tile tile) {
  Request request = *ask.request;
  request.tile = tile;
  request.logical_block = {0, 0};
  request.ceilings = {};
  return BorrowedBatch::make(std::move(request), ask.facts);
}

// Whether the kernel can be of this request: its lengths are those.
bool fits_request(const KernelText& text, const Request& request) {
  std::vector<int64_t> lengths;
  for (const Window& w : text.windows) {
    if (w.output || w.full.size() < 2 || lengths.size() == 2) continue;
    lengths.push_back(w.full[w.full.size() - 2]);
  }
  return lengths.size() == 2 && lengths[0] == request.q_len &&
         lengths[1] == request.kv_len;
}

// Each kernel without its trips.
Result<std::vector<KernelProfile>> profiles_of(std::vector<KernelText> kernels,
                                               const Chip& chip) {
  std::vector<KernelProfile> out;
  for (KernelText& text : kernels) {
    const std::string name = text.name;
    auto profile = profile_kernel(std::move(text), chip.branch_delay);
    if (!profile) {
      return Error{profile.error().kind,
                   fmt::format("{} of kernel {}", profile.error().message,
                               in_quotes(name))};
    }
    out.push_back(std::move(*profile));
  }
  return out;
}

// Of two rules for a region the last one holds.
Result<std::vector<TripRule>> rules_of(
    const ScheduleAsk& ask, const std::vector<KernelProfile>& profiles) {
  if (auto e = check_rules(profiles, ask.rules); !e) return e.error();
  std::vector<TripRule> out;
  for (const TripRule& rule : ask.known) {
    if (check_rules(profiles, {&rule, 1})) out.push_back(rule);
  }
  out.insert(out.end(), ask.rules.begin(), ask.rules.end());
  return out;
}

Result<KernelReport> report_kernel(KernelProfile profile,
                                   const ScheduleAsk& ask, const Chip& chip,
                                   const std::vector<TripRule>& rules) {
  KernelReport k;
  if (ask.request && profile.text.opcode == "custom-call" &&
      fits_request(profile.text, *ask.request)) {
    k.block = kernel_blocks(profile.text);
    if (k.block) {
      auto batch = batch_at(ask, *k.block);
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

void add_kernel(KernelReport k, ScheduleReport& out) {
  const auto& cycles = k.prediction.cycles;
  if (!cycles) out.cycles.reset();
  if (out.cycles) *out.cycles += *cycles;
  if (k.prediction.attention) {
    out.heads = std::max(out.heads, k.prediction.heads);
    if (cycles) {
      out.attention_cycles = out.attention_cycles.value_or(0) + *cycles;
    }
  }
  out.kernels.push_back(std::move(k));
}

}  // namespace

std::optional<double> ScheduleReport::cycles_per_tile() const {
  const auto& of = attention_cycles ? attention_cycles : cycles;
  if (!of || !exact_tiles || *exact_tiles == 0 || heads == 0) {
    return {};
  }
  return *of / static_cast<double>(*exact_tiles) / static_cast<double>(heads);
}

Result<void> check_schedulable(const Request& r) {
  if (r.batch == 1 && r.masks.size() == 1) return {};
  return invalid("schedule",
                 "the plan must be of one batch row and one mask, found {} and "
                 "{}: describe others with --trips",
                 r.batch, r.masks.size());
}

Result<ScheduleReport> make_schedule(std::vector<KernelText> kernels,
                                     const ScheduleAsk& ask) {
  auto chip = find_chip(ask.target);
  if (!chip) return chip.error();
  ScheduleReport out;
  out.chip = *chip;
  out.target = ask.target;
  if (ask.request) {
    if (auto e = check_schedulable(*ask.request); !e) return e.error();
    auto exact = batch_at(ask, kExactTile);
    if (!exact) return exact.error();
    out.exact_tiles = count_plan(exact->plan()).steps;
  }
  auto profiles = profiles_of(std::move(kernels), *chip);
  if (!profiles) return profiles.error();
  auto rules = rules_of(ask, *profiles);
  if (!rules) return rules.error();
  out.follows_plan = !ask.known.empty();
  out.cycles = 0;
  for (KernelProfile& profile : *profiles) {
    auto kernel = report_kernel(std::move(profile), ask, *chip, *rules);
    if (!kernel) return kernel.error();
    add_kernel(std::move(*kernel), out);
  }
  if (ask.heads) out.heads = *ask.heads;
  return out;
}

}  // namespace tessera
