// cli/schedule/text.cc: a program's kernels as text.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "cli/lowering.h"
#include "cli/schedule/report.h"
#include "picture/labels.h"

namespace tessera::cli {
namespace {

using picture::clean_text;
using picture::with_commas;

std::string whole(double value) {
  if (!(value < 9e18)) return fmt::format("{:.3g}", value);
  return with_commas(std::llround(value));
}

// An integer, unless the heads' tile counts differ: then a mean with a
// fraction.
std::string tiles(double mean) {
  return std::trunc(mean) == mean ? whole(mean) : fmt::format("{:.1f}", mean);
}

class Text {
 public:
  std::string draw(const schedule::ScheduleReport& report,
                   const AskedKernel* own) {
    line("target", "{}: {:.2f} GHz (assumed), {:.0f} bytes of HBM a cycle{}",
         report.target, report.chip.gigahertz, report.chip.hbm_bytes_per_cycle,
         report.chip.calibration
             ? ""
             : ", not calibrated: held against no times on this chip");
    if (const auto& held = report.chip.calibration) {
      line(
          "calibrated",
          "on {}: those took {:.2f} times what is predicted ({:.2f} to {:.2f})",
          schedule::kCalibratedOn, held->median, held->p5, held->p95);
    }
    if (own) {
      const Tile& tile = own->kernel.tile;
      line("setting", "tile {}x{}, {} tiles a pass: {}", tile.q, tile.kv,
           own->kernel.options.tiles_per_pass, own->chosen_by());
      line("lowering", "{}", lowering_text(own->kernel.lowering));
      if (own->work) {
        line("pairs", "{} legal, {} of tiles, {} paid",
             with_commas(own->legal_pairs), with_commas(own->work->pairs),
             with_commas(own->work->paid));
      }
    }
    std::string small;
    for (const schedule::KernelReport& k : report.kernels) {
      if (k.profile.text.opcode == "custom-call" ||
          report.kernels.size() == 1) {
        kernel(k);
      } else {
        small += fmt::format(
            "{:<40} {:<14} {:>9} bundles {:>16}{}\n",
            clean_text(k.profile.text.name, 39, true), k.profile.text.opcode,
            with_commas(static_cast<int64_t>(k.profile.text.bundles.size())),
            k.prediction.cycles
                ? fmt::format("{} cycles", whole(*k.prediction.cycles))
                : "trips unknown",
            k.calls > 1 ? fmt::format(", {} times", k.calls) : "");
      }
    }
    if (!small.empty()) out_ += "\nbeside them\n" + small;
    if (report.copy_cycles > 0) {
      line("copies", "{} cycles that no kernel hides",
           whole(report.copy_cycles));
    }
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

  void kernel(const schedule::KernelReport& k) {
    const schedule::KernelText& text = k.profile.text;
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
        "region                 bundles  stalls  bound by        x  fills "
        "spills  "
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

  void region(const schedule::KernelReport& k, size_t r) {
    const schedule::Region& region = k.profile.tree.regions[r];
    const schedule::RegionTime& t = k.prediction.regions[r];
    const schedule::RegionCost& c = k.profile.own[r];
    std::string name(static_cast<size_t>(std::min<int64_t>(region.depth, 8)),
                     ' ');
    name += r == 0 ? "outside" : region.path.substr(region.path.rfind('/') + 1);
    std::string_view more = schedule::role_name(t.role);
    if (more.empty()) more = region.name;
    if (more.empty() && r > 0) more = region.source;
    if (!more.empty()) name += fmt::format(" {}", more);
    const bool known = t.source != schedule::TripSource::unknown;
    fmt::format_to(
        std::back_inserter(out_),
        "{:<22} {:>7} {:>7} {:>6} {:<6} {:>5.2f} {:>6} {:>6} {:>10} {:>11}{} "
        "{:>14} {:>12}\n",
        clean_text(name, 22, true), with_commas(c.bundles),
        with_commas(c.stalls), with_commas(c.bound),
        c.bound > 0 ? schedule::kSlotNames[c.bound_slot].substr(0, 6) : "",
        c.distance(), with_commas(c.used[schedule::kFill]),
        with_commas(c.used[schedule::kSpill]),
        with_commas(c.bytes) + (c.unknown_sizes > 0 ? "+?" : ""),
        known ? whole(t.trips) : "?",
        t.source == schedule::TripSource::assumed ? "*" : " ",
        known ? whole(t.bundle_cycles) : "?",
        known ? whole(t.memory_cycles) : "?");
    starred_ = starred_ || t.source == schedule::TripSource::assumed;
  }

  void totals(const schedule::ScheduleReport& r) {
    if (starred_) line("* trips", "of a branch that counts as always taken");
    const bool followed = std::any_of(
        r.kernels.begin(), r.kernels.end(),
        [](const schedule::KernelReport& k) { return k.prediction.attention; });
    if (r.exact_tiles && !followed && !r.follows_plan) {
      line("plan", "no kernel's grid follows it: trips are those of --trips");
    }
    if (r.cycles) line("program", "{} cycles", whole(*r.cycles));
    if (r.attention_cycles && r.heads > 0) {
      line("attention", "{} cycles, {} a head", whole(*r.attention_cycles),
           whole(*r.attention_cycles / static_cast<double>(r.heads)));
    }
    if (const auto share = r.cycles_per_tile()) {
      line("tile", "{:.1f} cycles each active tile of 256 x 256 ({} a head)",
           *share, tiles(*r.exact_tiles));
    }
  }

  std::string out_;
  bool starred_ = false;
};

}  // namespace

std::string schedule_text(const schedule::ScheduleReport& report,
                          const AskedKernel* own) {
  return Text().draw(report, own);
}

}  // namespace tessera::cli
