#include "picture/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "picture/labels.h"
#include "picture/svg_frame.h"

namespace tessera::picture {
namespace {

constexpr double kLeft = 128;
constexpr double kMapWidth = 1000;
constexpr double kRight = 192;
constexpr double kRow = 22;   // height of a slot, with its gap
constexpr double kBand = 20;  // height of a band of regions, with its gap
constexpr int64_t kMaxDepth = 4;
constexpr int64_t kMaxColumns = 1000;
constexpr double kMaxBundle = 12;
constexpr int kShades = 8;

std::string tenths(double x) {
  std::string s = fmt::format("{:.1f}", x);
  if (s.ends_with(".0")) s.resize(s.size() - 2);
  return s;
}

// A colour from hardly used to full, in the colours of the tiles of a plan.
std::string shade(int level) {
  const double t = static_cast<double>(level) / kShades;
  const auto mix = [&](double from, double to) {
    return static_cast<int>(std::lround(from + (to - from) * t));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(238, 30), mix(243, 64),
                     mix(250, 132));
}

class SchedulePicture : SvgLines {
 public:
  SchedulePicture(const Kernel& kernel, size_t loop)
      : k_(kernel),
        loop_(loop),
        region_(kernel.profile.tree.regions[loop]),
        size_(region_.end - region_.begin),
        columns_(std::min(size_, kMaxColumns)),
        width_(std::min(kMapWidth, static_cast<double>(size_) * kMaxBundle)) {}

  std::string draw() {
    collect_bands();
    const double top = 96 + static_cast<double>(bands_) * kBand;
    const double bottom = top + kRow * static_cast<double>(schedule::kSlots);
    const double height = bottom + 84;
    const double wide = std::max(kLeft + width_ + kRight, 640.0);
    out_ += svg_start(wide, height, title(), subtitle());
    out_ += svg_paper(wide, height);
    put("<text class='m' x='28' y='40'>{}</text>", title());
    put("<text class='s' x='28' y='60'>{}</text>", subtitle());
    bands(76);
    slots(top);
    ticks(bottom);
    legend(bottom + 54);
    out_ += "</svg>\n";
    return std::move(out_);
  }

 private:
  const schedule::RegionCost& cost() const { return k_.profile.whole[loop_]; }

  std::string title() const {
    return escape_markup(clean_text(k_.profile.text.name, 80, false));
  }

  std::string subtitle() const {
    const schedule::RegionCost& c = cost();
    std::string text =
        loop_ == 0 ? "the whole kernel" : "the body of " + region_.path;
    text += fmt::format(": {} bundles", with_commas(c.bundles));
    if (c.bound > 0) {
      text +=
          fmt::format(", at least {} for {} ({:.2f}x)", with_commas(c.bound),
                      schedule::kSlotNames[c.bound_slot], c.distance());
    }
    if (c.used[schedule::kFill] + c.used[schedule::kSpill] > 0) {
      text += fmt::format(", {} fills and {} spills",
                          with_commas(c.used[schedule::kFill]),
                          with_commas(c.used[schedule::kSpill]));
    }
    return escape_markup(text);
  }

  double at(int64_t bundle) const {
    return kLeft + width_ * static_cast<double>(bundle - region_.begin) /
                       static_cast<double>(size_);
  }

  void collect_bands() {
    const auto& regions = k_.profile.tree.regions;
    for (size_t r = loop_ + 1; r < regions.size(); ++r) {
      if (regions[r].begin >= region_.end) break;
      const int64_t band = regions[r].depth - region_.depth;
      if (band > kMaxDepth) continue;
      bands_ = std::max(bands_, band);
      inside_.push_back(r);
    }
  }

  void bands(double top) {
    put("<text class='k' x='{}' y='{}' text-anchor='end'>{}</text>",
        tenths(kLeft - 8), tenths(top + 12), bands_ > 0 ? "regions" : "");
    for (size_t r : inside_) {
      const schedule::Region& region = k_.profile.tree.regions[r];
      const double y =
          top + kBand * static_cast<double>(region.depth - region_.depth - 1);
      const double x = at(region.begin);
      const double wide = at(region.end) - x;
      const bool loop = region.kind == schedule::RegionKind::loop;
      put("<rect x='{}' y='{}' width='{}' height='16' rx='2' fill='{}'/>",
          tenths(x), tenths(y), tenths(std::max(wide, 1.0)),
          loop ? "#f4d9a8" : "#c9d3e0");
      std::string_view role =
          schedule::role_name(k_.prediction.regions[r].role);
      if (role.empty()) role = region.name;
      std::string label = region.path.substr(region.path.rfind('/') + 1);
      if (!role.empty()) label = role;
      const std::string more =
          fmt::format("{} {}", label, with_commas(k_.profile.whole[r].bundles));
      for (const std::string& text : {more, label}) {
        const std::string clean = clean_text(text, 60, false);
        if (5.8 * static_cast<double>(clean.size()) + 6 > wide) continue;
        put("<text class='b' x='{}' y='{}'>{}</text>", tenths(x + 4),
            tenths(y + 11.5), escape_markup(clean));
        break;
      }
    }
  }

  // Each column averages its bundles; adjacent columns of one shade form a run.
  void slots(double top) {
    std::vector<std::string> paths(kShades + 1);
    const double column = width_ / static_cast<double>(columns_);
    for (size_t s = 0; s < schedule::kSlots; ++s) {
      const double y = top + kRow * static_cast<double>(s);
      put("<text class='b' x='{}' y='{}' text-anchor='end'>{}</text>",
          tenths(kLeft - 8), tenths(y + 12.5), schedule::kSlotNames[s]);
      put("<rect x='{}' y='{}' width='{}' height='18' fill='#f6f7f9'/>",
          tenths(kLeft), tenths(y), tenths(width_));
      int last = 0;
      int64_t from = 0;
      for (int64_t c = 0; c <= columns_; ++c) {
        const int level = c < columns_ ? level_of(s, c) : -1;
        if (level == last) continue;
        if (last > 0) {
          fmt::format_to(std::back_inserter(paths[static_cast<size_t>(last)]),
                         "M{} {}h{}v18h-{}z",
                         tenths(kLeft + column * static_cast<double>(from)),
                         tenths(y),
                         tenths(column * static_cast<double>(c - from)),
                         tenths(column * static_cast<double>(c - from)));
        }
        last = level;
        from = c;
      }
      note(s, y);
    }
    for (int level = 1; level <= kShades; ++level) {
      const std::string& path = paths[static_cast<size_t>(level)];
      if (path.empty()) continue;
      put("<path fill='{}' d='{}'/>", shade(level), path);
    }
  }

  int level_of(size_t slot, int64_t column) const {
    const int64_t begin = region_.begin + size_ * column / columns_;
    const int64_t end =
        std::max(begin + 1, region_.begin + size_ * (column + 1) / columns_);
    int64_t used = 0;
    for (int64_t b = begin; b < end; ++b) {
      used += k_.profile.text.bundles[static_cast<size_t>(b)].used[slot];
    }
    const double share =
        static_cast<double>(used) /
        static_cast<double>(k_.profile.text.capacity[slot] * (end - begin));
    return static_cast<int>(std::ceil(share * kShades - 1e-9));
  }

  void note(size_t s, double y) {
    const schedule::RegionCost& c = cost();
    const int64_t most = c.bundles * k_.profile.text.capacity[s];
    put("<text class='{}' x='{}' y='{}'>{} of {} ({})</text>",
        c.bound > 0 && s == c.bound_slot ? "k" : "n",
        tenths(kLeft + width_ + 8), tenths(y + 12.5), with_commas(c.used[s]),
        with_commas(most), percent(c.used[s], most));
  }

  void ticks(double y) {
    // 1, 2, 5, 10, 20, 50, ...
    int64_t step = 1;
    for (int turn = 0;
         width_ * static_cast<double>(step) < 60 * static_cast<double>(size_);
         ++turn) {
      step = turn % 3 == 1 ? step / 2 * 5 : step * 2;
    }
    for (int64_t b = 0; b < size_; b += step) {
      const double x = at(region_.begin + b);
      put("<path d='M{} {}v4' stroke='#9ca3af' fill='none'/>", tenths(x),
          tenths(y));
      put("<text class='n' x='{}' y='{}'>{}</text>", tenths(x + 3),
          tenths(y + 11), with_commas(b));
    }
  }

  void legend(double y) {
    double x = 28;
    put("<text x='{}' y='{}'>share of slots used</text>", tenths(x), tenths(y));
    x += 124;
    for (int level = 1; level <= kShades; ++level) {
      put("<rect x='{}' y='{}' width='14' height='14' fill='{}'/>", tenths(x),
          tenths(y - 11), shade(level));
      x += 14;
    }
    put("<text x='{}' y='{}'>to 100%</text>", tenths(x + 6), tenths(y));
    x += 76;
    for (const auto& [fill, text] :
         {std::pair("#c9d3e0", "branch"), std::pair("#f4d9a8", "loop")}) {
      put("<rect x='{}' y='{}' width='14' height='14' rx='2' fill='{}'/>",
          tenths(x), tenths(y - 11), fill);
      put("<text x='{}' y='{}'>{}</text>", tenths(x + 20), tenths(y), text);
      x += 76;
    }
    if (columns_ < size_) {
      put("<text class='s' x='{}' y='{}'>{} bundles a column</text>", tenths(x),
          tenths(y),
          tenths(static_cast<double>(size_) / static_cast<double>(columns_)));
    }
  }

  const Kernel& k_;
  size_t loop_;
  const schedule::Region& region_;
  int64_t size_;
  int64_t columns_;
  double width_;
  int64_t bands_ = 0;
  std::vector<size_t> inside_;
};

}  // namespace

Result<std::string> draw_schedule(std::span<const Kernel> kernels) {
  const Kernel* largest = nullptr;
  for (const Kernel& k : kernels) {
    if (!largest ||
        k.profile.text.bundles.size() > largest->profile.text.bundles.size()) {
      largest = &k;
    }
  }
  if (!largest) {
    return invalid("schedule", "a picture needs a kernel, found none");
  }
  size_t loop = 0;
  const auto& regions = largest->profile.tree.regions;
  for (size_t r = 1; r < regions.size(); ++r) {
    if (regions[r].kind != schedule::RegionKind::loop) continue;
    if (loop == 0 || largest->profile.whole[r].bundles >
                         largest->profile.whole[loop].bundles) {
      loop = r;
    }
  }
  return SchedulePicture(*largest, loop).draw();
}

}  // namespace tessera::picture
