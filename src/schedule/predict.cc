#include "schedule/predict.h"

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "base/text.h"

namespace tessera::schedule {
namespace {

size_t index(int64_t i) { return static_cast<size_t>(i); }

// The kernel "splash.1" matches "splash" too.
bool is_kernel(const std::string& name, std::string_view asked) {
  if (name == asked) return true;
  if (name.size() <= asked.size() + 1 || !name.starts_with(asked)) return false;
  const std::string_view rest = std::string_view(name).substr(asked.size());
  return rest.front() == '.' && rest.substr(1).find_first_not_of(
                                    "0123456789") == std::string_view::npos;
}

bool is_inside(const RegionTree& tree, size_t region, std::string_view name) {
  for (int64_t p = tree.regions[region].parent; p > 0;) {
    const Region& outer = tree.regions[index(p)];
    if (outer.name == name) return true;
    p = outer.parent;
  }
  return false;
}

bool is_where(const RegionTree& tree, size_t region, const TripRule& rule) {
  if (rule.kind && tree.regions[region].kind != *rule.kind) return false;
  if (!rule.inside.empty() && !is_inside(tree, region, rule.inside)) {
    return false;
  }
  return rule.outside.empty() || !is_inside(tree, region, rule.outside);
}

// The regions that a rule matches.
std::vector<size_t> rule_regions(const KernelProfile& profile,
                                 const TripRule& rule) {
  std::string_view asked = rule.region;
  const size_t colon = asked.rfind(':');
  // Names of regions contain no colon, so the part before one is a kernel.
  if (colon != std::string_view::npos) {
    if (!is_kernel(profile.text.name, asked.substr(0, colon))) return {};
    asked.remove_prefix(colon + 1);
  }
  std::vector<size_t> out;
  const auto& regions = profile.tree.regions;
  for (size_t r = 1; r < regions.size(); ++r) {
    const bool is_named = asked == regions[r].path || asked == regions[r].name;
    if (is_named && is_where(profile.tree, r, rule)) out.push_back(r);
  }
  return out;
}

class Predictor {
 public:
  Predictor(const KernelProfile& profile, const Chip& chip)
      : p_(profile), chip_(chip) {
    out_.regions.resize(regions().size());
  }

  Result<void> rules(std::span<const TripRule> rules) {
    for (const TripRule& rule : rules) {
      if (!std::isfinite(rule.trips) || rule.trips < 0) {
        return invalid("schedule",
                       "trips must be a number from 0, found {} for region {}",
                       rule.trips, in_quotes(rule.region));
      }
      const auto meant = rule_regions(p_, rule);
      if (meant.size() > 1) {
        return invalid("schedule",
                       "a rule must mean one region, found {} for {}: use "
                       "paths such as {}",
                       meant.size(), in_quotes(rule.region),
                       regions()[meant[0]].path);
      }
      for (size_t r : meant) {
        const bool loop = regions()[r].kind == RegionKind::loop;
        const bool whole = loop && rule.as_loop && chip_.counts_whole_loops;
        set(r, whole ? *rule.as_loop : rule.trips, TripSource::rule);
      }
    }
    return {};
  }

  void attention(const PlanCounts& counts) {
    const auto found = attention_trips(p_, counts);
    if (!found) return;
    out_.attention = true;
    out_.heads = found->heads;
    out_.grid_steps = found->grid_steps;
    out_.dead_steps = found->dead_steps;
    out_.dead_cycles = found->dead_cycles;
    for (const RoleTrips& r : found->regions) plan(r.region, r.trips, r.role);
    input_trips_ = found->active_steps;
    output_trips_ = found->rows;
  }

  Prediction finish() {
    out_.regions[0].trips = 1;
    out_.regions[0].source = TripSource::kernel;
    for (size_t r = 1; r < regions().size(); ++r) inherit(r);
    time();
    out_.cycles_loops_once = total();
    if (out_.unknown.empty()) out_.cycles = out_.cycles_loops_once;
    return std::move(out_);
  }

 private:
  const std::vector<Region>& regions() const { return p_.tree.regions; }

  void set(size_t r, double trips, TripSource source) {
    out_.regions[r].trips = trips;
    out_.regions[r].source = source;
  }

  // A rule of the caller takes precedence over the plan.
  void plan(size_t r, double trips, Role role) {
    out_.regions[r].role = role;
    if (out_.regions[r].source != TripSource::rule) {
      set(r, trips, TripSource::plan);
    }
  }

  void inherit(size_t r) {
    const Region& region = regions()[r];
    const RegionTime& outer = out_.regions[index(region.parent)];
    if (out_.regions[r].source != TripSource::unknown) return;
    // Nothing runs inside a region that never runs.
    if (outer.trips == 0 && outer.source != TripSource::unknown) {
      set(r, 0, outer.source);
      return;
    }
    const double limit =
        region.limit ? static_cast<double>(*region.limit) : 1.0;
    if (outer.source == TripSource::unknown) {
      set(r, outer.trips * limit, TripSource::unknown);
    } else if (region.kind == RegionKind::branch) {
      set(r, at_most_grid(index(region.parent), outer.trips),
          TripSource::assumed);
      out_.assumed.push_back(static_cast<int64_t>(r));
    } else if (region.limit) {
      set(r, outer.trips * limit, TripSource::constant);
    } else {
      set(r, outer.trips, TripSource::unknown);
      out_.unknown.push_back(static_cast<int64_t>(r));
    }
  }

  // A pipeline's loop has more iterations than its grid, to fill and drain the
  // pipeline. Conditional work in the loop runs at most once per grid step.
  double at_most_grid(size_t region, double trips) const {
    if (!regions()[region].grid || p_.text.grid.empty()) return trips;
    double steps = 1;
    for (int64_t n : p_.text.grid) {
      if (n < 0) return trips;
      steps *= static_cast<double>(n);
    }
    return std::min(trips, steps);
  }

  // A pipeline moves a window when its block changes, at most once per grid
  // step. In an attention kernel, inputs move at most once per active step and
  // outputs once per row. Other DMAs run with their region.
  void time() {
    for (size_t r = 0; r < regions().size(); ++r) {
      RegionTime& t = out_.regions[r];
      t.bundle_cycles = t.trips * static_cast<double>(p_.own[r].cycles());
    }
    for (size_t b = 0; b < p_.text.bundles.size(); ++b) {
      RegionTime& t = out_.regions[p_.tree.innermost[b]];
      for (const Transfer& move : p_.text.bundles[b].transfers) {
        double trips = t.trips;
        if (move.window && out_.attention) {
          trips = move.writes ? output_trips_ : input_trips_;
        } else if (move.predicated) {
          trips = at_most_grid(p_.tree.innermost[b], trips);
        }
        const auto bytes =
            static_cast<double>(transfer_bytes(move, p_.granule));
        t.memory_cycles += trips * bytes / chip_.hbm_bytes_per_cycle;
      }
    }
  }

  double total() const {
    // A loop and the branches in it, without inner loops, form one sum.
    std::vector<double> bundles(regions().size());
    std::vector<double> memory(regions().size());
    double sum = 0;
    for (size_t r = regions().size(); r-- > 0;) {
      bundles[r] += out_.regions[r].bundle_cycles;
      memory[r] += out_.regions[r].memory_cycles;
      if (regions()[r].kind == RegionKind::branch) {
        bundles[index(regions()[r].parent)] += bundles[r];
        memory[index(regions()[r].parent)] += memory[r];
      } else {
        sum += std::max(bundles[r], memory[r]);
      }
    }
    return sum;
  }

  const KernelProfile& p_;
  const Chip& chip_;
  Prediction out_;
  double input_trips_ = 0;
  double output_trips_ = 0;
};

}  // namespace

std::string_view trip_source_name(TripSource source) {
  switch (source) {
    case TripSource::kernel:
      return "kernel";
    case TripSource::constant:
      return "constant";
    case TripSource::plan:
      return "plan";
    case TripSource::rule:
      return "rule";
    case TripSource::assumed:
      return "assumed";
    case TripSource::unknown:
      break;
  }
  return "unknown";
}

Result<Prediction> predict(const KernelProfile& profile, const Chip& chip,
                           std::span<const TripRule> rules,
                           const std::optional<PlanCounts>& counts) {
  Predictor predictor(profile, chip);
  if (Result<void> r = predictor.rules(rules); !r) return r.error();
  if (counts) predictor.attention(*counts);
  return predictor.finish();
}

Result<void> check_rules(std::span<const KernelProfile> profiles,
                         std::span<const TripRule> rules) {
  constexpr size_t kMaxListed = 400;
  for (const TripRule& rule : rules) {
    std::string meant;
    std::string known;
    size_t count = 0;
    for (const KernelProfile& p : profiles) {
      const auto& regions = p.tree.regions;
      const auto add = [&](std::string& list, size_t r) {
        if (list.size() > kMaxListed) return;
        list += fmt::format("{}{}:{}", list.empty() ? "" : ", ", p.text.name,
                            regions[r].path);
      };
      for (size_t r : rule_regions(p, rule)) {
        add(meant, r);
        ++count;
      }
      for (size_t r = 1; r < regions.size(); ++r) add(known, r);
    }
    if (count == 1) continue;
    return invalid("schedule", "a rule must mean one region{}, found {} for {}",
                   known.empty() ? "" : fmt::format(" ({})", known),
                   count == 0 ? "none" : meant, in_quotes(rule.region));
  }
  return {};
}

}  // namespace tessera::schedule
