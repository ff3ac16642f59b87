// cli/schedule/report.cc: a kernel in words, then as JSON.
#include "cli/schedule/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "picture/labels.h"

namespace tessera::cli {
namespace {

using nlohmann::json;
using picture::clean_text;
using picture::with_commas;

constexpr Tile kExactTile{256, 256};

Result<OwnedBatch> batch_at(const Resolved& resolved, Tile tile) {
  Request request = resolved.request;
  request.tile = tile;
  request.logical_block = {0, 0};
  request.ceilings = {};
  return OwnedBatch::copy(std::move(request), resolved.facts.view());
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

std::optional<double> exact_share(const ScheduleReport& r) {
  const auto& cycles = r.attention_cycles ? r.attention_cycles : r.cycles;
  if (!cycles || !r.exact_tiles || *r.exact_tiles == 0 || r.heads == 0) {
    return {};
  }
  return *cycles / static_cast<double>(*r.exact_tiles) /
         static_cast<double>(r.heads);
}

json slots_json(const SlotCounts& used, const SlotCounts& capacity,
                int64_t bundles) {
  json out = json::object();
  for (size_t s = 0; s < kSlots; ++s) {
    const auto most = static_cast<double>(capacity[s] * bundles);
    out[std::string(kSlotNames[s])] = {
        {"used", used[s]},
        {"capacity", capacity[s]},
        {"share", most > 0 ? static_cast<double>(used[s]) / most : 0}};
  }
  return out;
}

json cost_json(const RegionCost& c, const SlotCounts& capacity) {
  return {{"bundles", c.bundles},
          {"slots", slots_json(c.used, capacity, c.bundles)},
          {"bound", c.bound},
          {"bound_slot", c.bound > 0 ? json(kSlotNames[c.bound_slot]) : json()},
          {"distance", c.distance()},
          {"fills", c.used[kFill]},
          {"spills", c.used[kSpill]},
          {"dmas", c.transfers},
          {"hbm_bytes", c.bytes},
          {"dmas_of_unknown_size", c.unknown_sizes}};
}

constexpr const char* kKinds[] = {"kernel", "loop", "branch"};

json region_json(const KernelReport& k, size_t r) {
  const Region& region = k.profile.tree.regions[r];
  const RegionTime& t = k.prediction.regions[r];
  const bool known = t.source != TripSource::unknown;
  json out = {{"path", region.path},
              {"name", region.name},
              {"role", role_name(t.role)},
              {"kind", kKinds[static_cast<size_t>(region.kind)]},
              {"source", region.source},
              {"begin", region.begin},
              {"end", region.end},
              {"parent", region.parent},
              {"depth", region.depth},
              {"own", cost_json(k.profile.own[r], k.profile.text.capacity)},
              {"whole", cost_json(k.profile.whole[r], k.profile.text.capacity)},
              {"trips", known ? json(t.trips) : json()},
              {"trips_from", trip_source_name(t.source)},
              {"bundle_cycles", known ? json(t.bundle_cycles) : json()},
              {"memory_cycles", known ? json(t.memory_cycles) : json()}};
  return out;
}

json optional_json(const std::optional<double>& value) {
  return value ? json(*value) : json();
}

json kernel_json(const KernelReport& k) {
  json regions = json::array();
  for (size_t r = 0; r < k.profile.tree.regions.size(); ++r) {
    regions.push_back(region_json(k, r));
  }
  json paths = json::array();
  for (int64_t r : k.prediction.unknown) {
    paths.push_back(k.profile.tree.regions[static_cast<size_t>(r)].path);
  }
  json out = {{"name", k.profile.text.name},
              {"opcode", k.profile.text.opcode},
              {"bundles", k.profile.text.bundles.size()},
              {"grid", k.profile.text.grid},
              {"regions", std::move(regions)},
              {"irregular_jumps", k.profile.tree.irregular},
              {"unknown_trips", std::move(paths)},
              {"cycles", optional_json(k.prediction.cycles)}};
  if (k.prediction.attention) {
    out["attention"] = {{"block_q", k.block->q},
                        {"block_kv", k.block->kv},
                        {"heads", k.prediction.heads},
                        {"active_steps", k.counts->steps},
                        {"full_steps", k.counts->full},
                        {"partial_steps", k.counts->partial},
                        {"rows", k.counts->rows},
                        {"grid_steps", k.prediction.grid_steps},
                        {"dead_steps", k.prediction.dead_steps},
                        {"dead_cycles", k.prediction.dead_cycles}};
  }
  return out;
}

std::string whole(double value) {
  if (!(value < 9e18)) return fmt::format("{:.3g}", value);
  return with_commas(std::llround(value));
}

class Text {
 public:
  std::string draw(const ScheduleReport& report) {
    line("target", "{}: {:.2f} GHz (assumed), {:.0f} bytes of HBM a cycle",
         report.target, report.chip.gigahertz, report.chip.hbm_bytes_per_cycle);
    std::string small;
    for (const KernelReport& k : report.kernels) {
      if (k.profile.text.opcode == "custom-call" ||
          report.kernels.size() == 1) {
        kernel(k);
      } else {
        small += fmt::format(
            "{:<40} {:<14} {:>9} bundles {:>16}\n",
            clean_text(k.profile.text.name, 39, true), k.profile.text.opcode,
            with_commas(static_cast<int64_t>(k.profile.text.bundles.size())),
            k.prediction.cycles
                ? fmt::format("{} cycles", whole(*k.prediction.cycles))
                : "trips unknown");
      }
    }
    if (!small.empty()) out_ += "\nbeside them\n" + small;
    out_ += '\n';
    totals(report);
    return std::move(out_);
  }

 private:
  template <class... Args>
  void line(std::string_view key, fmt::format_string<Args...> text,
            Args&&... args) {
    fmt::format_to(std::back_inserter(out_), "{:<11} ", key);
    fmt::format_to(std::back_inserter(out_), text, std::forward<Args>(args)...);
    out_ += '\n';
  }

  void kernel(const KernelReport& k) {
    const KernelText& text = k.profile.text;
    out_ += '\n';
    std::string grid;
    for (int64_t n : text.grid) {
      grid += fmt::format("{}{}", grid.empty() ? ", grid " : " x ",
                          n < 0 ? "?" : with_commas(n));
    }
    line("kernel", "{}: {}{} bundles{}", clean_text(text.name, 80, true),
         text.opcode.empty() ? "" : text.opcode + ", ",
         with_commas(static_cast<int64_t>(text.bundles.size())), grid);
    out_ +=
        "region                 bundles  bound by        x  fills spills  "
        "HBM bytes       trips          cycles   HBM cycles\n";
    for (size_t r = 0; r < k.profile.tree.regions.size(); ++r) region(k, r);
    if (k.prediction.attention) {
      line("steps",
           "{} active of {} x {} a head ({} full, {} partial), {} heads; {} of "
           "{} grid steps dead: {} cycles",
           with_commas(k.counts->steps), k.block->q, k.block->kv,
           with_commas(k.counts->full), with_commas(k.counts->partial),
           k.prediction.heads, whole(k.prediction.dead_steps),
           whole(k.prediction.grid_steps), whole(k.prediction.dead_cycles));
    }
    for (int64_t r : k.prediction.unknown) {
      line("unknown", "trips of {}: give --trips",
           k.profile.tree.regions[static_cast<size_t>(r)].path);
    }
    if (k.prediction.cycles) line("cycles", "{}", whole(*k.prediction.cycles));
  }

  void region(const KernelReport& k, size_t r) {
    const Region& region = k.profile.tree.regions[r];
    const RegionTime& t = k.prediction.regions[r];
    const RegionCost& c = k.profile.own[r];
    std::string name(static_cast<size_t>(std::min<int64_t>(region.depth, 8)),
                     ' ');
    name += r == 0 ? "outside" : region.path.substr(region.path.rfind('/') + 1);
    std::string_view more = role_name(t.role);
    if (more.empty()) more = region.name;
    if (more.empty() && r > 0) more = region.source;
    if (!more.empty()) name += fmt::format(" {}", more);
    const bool known = t.source != TripSource::unknown;
    fmt::format_to(
        std::back_inserter(out_),
        "{:<22} {:>7} {:>6} {:<6} {:>5.2f} {:>6} {:>6} {:>10} {:>11}{} "
        "{:>14} {:>12}\n",
        clean_text(name, 22, true), with_commas(c.bundles),
        with_commas(c.bound),
        c.bound > 0 ? kSlotNames[c.bound_slot].substr(0, 6) : "", c.distance(),
        with_commas(c.used[kFill]), with_commas(c.used[kSpill]),
        with_commas(c.bytes) + (c.unknown_sizes > 0 ? "+?" : ""),
        known ? whole(t.trips) : "?",
        t.source == TripSource::assumed ? "*" : " ",
        known ? whole(t.bundle_cycles) : "?",
        known ? whole(t.memory_cycles) : "?");
    starred_ = starred_ || t.source == TripSource::assumed;
  }

  void totals(const ScheduleReport& r) {
    if (starred_) line("* trips", "of a branch that counts as always taken");
    const bool followed = std::any_of(
        r.kernels.begin(), r.kernels.end(),
        [](const KernelReport& k) { return k.prediction.attention; });
    if (r.exact_tiles && !followed && !r.follows_plan) {
      line("plan", "no kernel's grid follows it: trips are those of --trips");
    }
    if (r.cycles) line("program", "{} cycles", whole(*r.cycles));
    if (r.attention_cycles && r.heads > 0) {
      line("attention", "{} cycles, {} a head", whole(*r.attention_cycles),
           whole(*r.attention_cycles / static_cast<double>(r.heads)));
    }
    if (const auto share = exact_share(r)) {
      line("tile", "{:.1f} cycles each active tile of 256 x 256 ({} a head)",
           *share, with_commas(*r.exact_tiles));
    }
  }

  std::string out_;
  bool starred_ = false;
};

}  // namespace

Result<void> check_schedulable(const Resolved& resolved) {
  const Request& r = resolved.request;
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
    if (Result<void> r = check_schedulable(*ask.request); !r) return r.error();
    auto exact = batch_at(*ask.request, kExactTile);
    if (!exact) return exact.error();
    out.exact_tiles = count_plan(exact->plan()).steps;
  }
  std::vector<KernelProfile> profiles;
  for (KernelText& text : kernels) {
    const std::string name = text.name;
    auto profile = profile_kernel(std::move(text), chip->branch_delay);
    if (!profile) {
      return Error{profile.error().kind,
                   fmt::format("{} of kernel {}", profile.error().message,
                               in_quotes(name))};
    }
    profiles.push_back(std::move(*profile));
  }
  if (Result<void> r = check_rules(profiles, ask.rules); !r) return r.error();
  std::vector<TripRule> rules;
  for (const TripRule& rule : ask.known) {
    if (check_rules(profiles, {&rule, 1})) rules.push_back(rule);
  }
  // Of two rules for a region the last one holds.
  rules.insert(rules.end(), ask.rules.begin(), ask.rules.end());
  out.follows_plan = !ask.known.empty();
  out.cycles = 0;
  for (KernelProfile& profile : profiles) {
    KernelReport k;
    if (ask.request && profile.text.opcode == "custom-call" &&
        fits_request(profile.text, ask.request->request)) {
      k.block = kernel_blocks(profile.text);
      if (k.block) {
        auto batch = batch_at(*ask.request, *k.block);
        if (!batch) return batch.error();
        k.counts = count_plan(batch->plan());
      }
    }
    auto prediction = predict(profile, *chip, rules, k.counts);
    if (!prediction) return prediction.error();
    k.prediction = std::move(*prediction);
    k.profile = std::move(profile);
    const auto& cycles = k.prediction.cycles;
    if (!cycles) out.cycles.reset();
    if (out.cycles) *out.cycles += *cycles;
    if (k.prediction.attention) {
      out.heads = std::max(out.heads, k.prediction.heads);
      if (cycles)
        out.attention_cycles = out.attention_cycles.value_or(0) + *cycles;
    }
    out.kernels.push_back(std::move(k));
  }
  if (ask.heads) out.heads = *ask.heads;
  return out;
}

json schedule_json(const ScheduleReport& report) {
  json kernels = json::array();
  for (const KernelReport& k : report.kernels)
    kernels.push_back(kernel_json(k));
  json out = {{"target", report.target},
              {"assumed",
               {{"gigahertz", report.chip.gigahertz},
                {"hbm_bytes_per_cycle", report.chip.hbm_bytes_per_cycle}}},
              {"kernels", std::move(kernels)},
              {"cycles", optional_json(report.cycles)},
              {"attention_cycles", optional_json(report.attention_cycles)},
              {"heads", report.heads > 0 ? json(report.heads) : json()},
              {"exact_tiles_per_head",
               report.exact_tiles ? json(*report.exact_tiles) : json()},
              {"cycles_per_tile", optional_json(exact_share(report))}};
  const auto& cycles =
      report.attention_cycles ? report.attention_cycles : report.cycles;
  out["cycles_per_head"] =
      cycles && report.heads > 0
          ? json(*cycles / static_cast<double>(report.heads))
          : json();
  return out;
}

std::string schedule_text(const ScheduleReport& report) {
  return Text().draw(report);
}

}  // namespace tessera::cli
