#include "schedule/predict.h"

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "base/text.h"

namespace tessera {
namespace {

// v6e: 1,640 GB/s of HBM at a clock of 1.75 GHz, which is assumed.
constexpr Chip kChips[] = {{"v6e", 1.75, 937, 4}};

size_t index(int64_t i) { return static_cast<size_t>(i); }

// "splash.1" answers to "splash" too.
bool is_kernel(const std::string& name, std::string_view asked) {
  if (name == asked) return true;
  if (name.size() <= asked.size() + 1 || !name.starts_with(asked)) return false;
  const std::string_view rest = std::string_view(name).substr(asked.size());
  return rest.front() == '.' && rest.substr(1).find_first_not_of(
                                    "0123456789") == std::string_view::npos;
}

// The regions that a rule means.
std::vector<size_t> rule_regions(const KernelProfile& profile,
                                 const TripRule& rule) {
  std::string_view asked = rule.region;
  const size_t colon = asked.rfind(':');
  // A source's "kernel.py:17" is no name, so a colon ends a kernel's.
  if (colon != std::string_view::npos) {
    if (!is_kernel(profile.text.name, asked.substr(0, colon))) return {};
    asked.remove_prefix(colon + 1);
  }
  std::vector<size_t> out;
  const auto& regions = profile.tree.regions;
  for (size_t r = 1; r < regions.size(); ++r) {
    if (asked == regions[r].path || asked == regions[r].name) out.push_back(r);
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
      for (size_t r : meant) set(r, rule.trips, TripSource::rule);
    }
    return {};
  }

  // The vendor's pipeline around a grid, whose parts attention kernels share:
  // every step of the grid runs the loop, an active one the products of its
  // tile, the first of a row what precedes them and the last what follows.
  void attention(const PlanCounts& counts) {
    size_t grid = 0;
    for (size_t r = 1; r < regions().size() && grid == 0; ++r) {
      if (regions()[r].grid) grid = r;
    }
    const auto& bounds = p_.text.grid;
    const int64_t all_heads = window_heads();
    if (grid == 0 || all_heads == 0 || bounds.size() < 2) return;
    const bool fixed = std::count(bounds.begin(), bounds.end(), -1) == 0;
    if (bounds.size() > 3 || (fixed && bounds.size() != 3)) return;

    size_t inside = grid;
    const std::vector<size_t> whole = branches_in(grid);
    const auto has_product = [&](size_t r) {
      return p_.whole[r].used[kMatmul] > 0;
    };
    size_t guards = 0;
    for (size_t r : whole) {
      if (!has_product(r) || branches_in(r).empty()) continue;
      inside = r;
      ++guards;
    }
    if (guards > 1) return;
    const std::vector<size_t> parts = branches_in(inside);
    std::vector<size_t> products;
    for (size_t r : parts) {
      if (has_product(r)) products.push_back(r);
    }
    if (products.empty() || products.size() > 2) return;

    const auto heads = static_cast<double>(all_heads);
    const double active = static_cast<double>(counts.steps) * heads;
    double steps = active;
    double rows = static_cast<double>(counts.filled_rows) * heads;
    if (fixed) {  // the last bound sweeps a row, whatever its rows are of
      rows = static_cast<double>(bounds[0]) * static_cast<double>(bounds[1]);
      steps = rows * static_cast<double>(bounds[2]);
    }
    if (steps < active) return;  // a plan of something else
    out_.attention = true;
    out_.heads = all_heads;
    out_.grid_steps = steps;
    out_.dead_steps = steps - active;
    const int64_t overhead =
        p_.own[grid].bundles + (inside != grid ? p_.own[inside].bundles : 0);
    out_.dead_cycles = out_.dead_steps * static_cast<double>(overhead);
    const double loops =
        regions()[grid].limit
            ? static_cast<double>(*regions()[grid].limit)
            : steps + 2;  // the pipeline's first fetch and last write
    plan(grid, loops, Role::grid);
    if (inside != grid) plan(inside, steps, Role::step);
    for (size_t r : parts) {
      if (r < products.front()) plan(r, rows, Role::first);
      if (r > products.back()) plan(r, rows, Role::last);
    }
    if (products.size() == 1) {
      plan(products[0], active, Role::compute);
    } else {
      // Masks are work of the vector units.
      const bool second = p_.whole[products[1]].used[kValu] >=
                          p_.whole[products[0]].used[kValu];
      plan(products[second ? 0 : 1], static_cast<double>(counts.full) * heads,
           Role::full);
      plan(products[second ? 1 : 0],
           static_cast<double>(counts.partial) * heads, Role::partial);
    }
    input_trips_ = active;
    output_trips_ = rows;
  }

  Prediction finish() {
    out_.regions[0].trips = 1;
    out_.regions[0].source = TripSource::kernel;
    for (size_t r = 1; r < regions().size(); ++r) inherit(r);
    time();
    if (out_.unknown.empty()) out_.cycles = total();
    return std::move(out_);
  }

 private:
  const std::vector<Region>& regions() const { return p_.tree.regions; }

  void set(size_t r, double trips, TripSource source) {
    out_.regions[r].trips = trips;
    out_.regions[r].source = source;
  }

  // What the caller said holds.
  void plan(size_t r, double trips, Role role) {
    out_.regions[r].role = role;
    if (out_.regions[r].source != TripSource::rule) {
      set(r, trips, TripSource::plan);
    }
  }

  std::vector<size_t> branches_in(size_t parent) const {
    std::vector<size_t> out;
    for (size_t r = parent + 1; r < regions().size(); ++r) {
      if (regions()[r].parent == static_cast<int64_t>(parent) &&
          regions()[r].kind == RegionKind::branch) {
        out.push_back(r);
      }
    }
    return out;
  }

  // Of q, the first operand that the pipeline moves: [heads, tokens, dim]; 0
  // where it is nothing like that.
  int64_t window_heads() const {
    for (const Window& w : p_.text.windows) {
      if (w.output) continue;
      return w.full.size() == 3 && w.shape.size() == 3 && w.shape[0] == 1
                 ? w.full[0]
                 : 0;
    }
    return 0;
  }

  void inherit(size_t r) {
    const Region& region = regions()[r];
    const RegionTime& outer = out_.regions[index(region.parent)];
    if (out_.regions[r].source != TripSource::unknown) return;
    if (outer.source == TripSource::unknown) return;
    if (region.kind == RegionKind::branch) {
      set(r, outer.trips, TripSource::assumed);
      out_.assumed.push_back(static_cast<int64_t>(r));
    } else if (region.limit) {
      set(r, outer.trips * static_cast<double>(*region.limit),
          TripSource::constant);
    } else {
      out_.unknown.push_back(static_cast<int64_t>(r));
    }
  }

  // Windows of a pipeline are moved when their block changes: inputs with an
  // active step at most, outputs once a row. Other DMAs run with their region.
  void time() {
    for (size_t r = 0; r < regions().size(); ++r) {
      RegionTime& t = out_.regions[r];
      t.bundle_cycles = t.trips * static_cast<double>(p_.own[r].bundles);
    }
    for (size_t b = 0; b < p_.text.bundles.size(); ++b) {
      RegionTime& t = out_.regions[p_.tree.innermost[b]];
      for (const Transfer& move : p_.text.bundles[b].transfers) {
        double trips = t.trips;
        if (move.window && out_.attention) {
          trips = move.writes ? output_trips_ : input_trips_;
        }
        const auto bytes = static_cast<double>(transfer_bytes(move));
        t.memory_cycles += trips * bytes / chip_.hbm_bytes_per_cycle;
      }
    }
  }

  double total() const {
    // What a loop holds outside of inner loops is one sum.
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

std::string_view role_name(Role role) {
  constexpr std::string_view kNames[] = {"",        "grid", "step",    "first",
                                         "compute", "full", "partial", "last"};
  return kNames[static_cast<size_t>(role)];
}

Result<Chip> find_chip(std::string_view target) {
  std::string known;
  for (const Chip& chip : kChips) {
    if (target.substr(0, target.find(':')) == chip.name) return chip;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", chip.name);
  }
  return invalid("schedule", "a target must be of a known chip ({}), found {}",
                 known, in_quotes(target));
}

PlanCounts count_plan(const Plan& plan) {
  PlanCounts out;
  const Worklist& w = plan.forward;
  for (const Entry& e : w.entries) {
    ++(e.tile_class() == TileClass::full ? out.full : out.partial);
  }
  out.steps = out.full + out.partial;
  out.rows = w.lists * w.rows;
  for (int64_t l = 0; l < w.lists; ++l) {
    for (int64_t r = 0; r < w.rows; ++r) {
      out.filled_rows += w.row(l, r).empty() ? 0 : 1;
    }
  }
  return out;
}

std::optional<Tile> kernel_blocks(const KernelText& text) {
  std::vector<int64_t> blocks;
  for (const Window& w : text.windows) {
    if (w.output || w.shape.size() < 2 || blocks.size() == 2) continue;
    blocks.push_back(w.shape[w.shape.size() - 2]);
  }
  if (blocks.size() != 2) return {};
  for (int64_t n : blocks) {
    if (n < kMinBlock || n > kMaxBlock) return {};
  }
  return Tile{blocks[0], blocks[1]};
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

}  // namespace tessera
