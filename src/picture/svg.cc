// picture/svg.cc: the tiles as one self-contained SVG of bounded size, on its
// own paper.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/integers.h"
#include "picture/labels.h"
#include "picture/parts.h"
#include "picture/svg_frame.h"

namespace tessera::picture {
namespace {

using Kind = DocumentSpan::Kind;

constexpr double kMapSide = 768;      // longest side of the map, in pixels
constexpr double kMaxTile = 96;       // so that four tiles make a small picture
constexpr double kMinSide = 64;       // a decode step is one row of tiles
constexpr int64_t kExactTiles = 512;  // per side; above, cells are shaded
constexpr int64_t kCells = 512;       // per side
constexpr size_t kMaxMapBytes = 1'500'000;
constexpr int64_t kMaxBands = 400;
constexpr size_t kTitleLines = 4;

// Blue and amber are distinct for every common colour blindness.
struct Rgb {
  double r, g, b;
};
constexpr Rgb kEmpty{232, 236, 242};
constexpr Rgb kPartial{240, 163, 50};
constexpr Rgb kFull{38, 103, 186};
constexpr Rgb kMixed{172, 84, 150};

std::string hex(Rgb c) {
  return fmt::format("#{:02x}{:02x}{:02x}", static_cast<int>(c.r + 0.5),
                     static_cast<int>(c.g + 0.5), static_cast<int>(c.b + 0.5));
}

// The colour of a cell from its shares. Any active tile is visible: a cell
// starts at a third of full ink. A mix of both classes is mauve, not grey.
Rgb mix(double partial, double full) {
  const double active = partial + full;
  if (active <= 0) return kEmpty;
  const double f = full / active;
  const double wp = (1 - f) * (1 - f);
  const double wm = 2 * f * (1 - f);
  const double wf = f * f;
  const double ink = active >= 1 ? 1 : 0.3 + 0.6 * active;
  const auto blend = [&](double e, double p, double m, double c) {
    return (1 - ink) * e + ink * (wp * p + wm * m + wf * c);
  };
  return {blend(kEmpty.r, kPartial.r, kMixed.r, kFull.r),
          blend(kEmpty.g, kPartial.g, kMixed.g, kFull.g),
          blend(kEmpty.b, kPartial.b, kMixed.b, kFull.b)};
}

// Merges equal runs in consecutive rows into rectangles, in one path per
// colour. Colours are small indices.
class RectMerger {
 public:
  explicit RectMerger(size_t colors) : paths_(colors) {}

  struct Run {
    int64_t begin = 0;
    int64_t end = 0;
    size_t color = 0;
    int64_t row = 0;  // where the rectangle starts
  };

  // Rows in order; runs ascending.
  void add_row(int64_t row, std::vector<Run> runs) {
    size_t at = 0;
    for (Run& run : runs) {
      run.row = row;
      while (at < open_.size() && open_[at].begin < run.begin) {
        close(open_[at++], row);
      }
      if (at < open_.size() && open_[at].begin == run.begin) {
        const Run& above = open_[at++];
        if (above.end == run.end && above.color == run.color) {
          run.row = above.row;
        } else {
          close(above, row);
        }
      }
    }
    while (at < open_.size()) close(open_[at++], row);
    open_ = std::move(runs);
  }

  void finish(int64_t rows) { add_row(rows, {}); }

  const std::vector<std::string>& paths() const { return paths_; }
  size_t bytes() const { return bytes_; }

 private:
  void close(const Run& run, int64_t row) {
    std::string& path = paths_[run.color];
    const size_t before = path.size();
    fmt::format_to(std::back_inserter(path), "M{} {}h{}v{}h-{}z", run.begin,
                   run.row, run.end - run.begin, row - run.row,
                   run.end - run.begin);
    bytes_ += path.size() - before;
  }

  std::vector<std::string> paths_;
  std::vector<Run> open_;
  size_t bytes_ = 0;
};

// Fourths of a cell: 0 only for no tile, 4 only for all.
size_t fourths(int64_t n, int64_t total) {
  if (n == 0) return 0;
  if (n == total) return 4;
  return static_cast<size_t>(
      std::clamp<int64_t>((8 * n + total) / (2 * total), 1, 3));
}

struct Map {
  std::vector<std::string> paths;
  std::vector<std::string> fills;
  int64_t down = 1;
  int64_t across = 1;
  bool fits = false;

  bool shaded() const { return down > 1 || across > 1; }
};

Map exact_map(const Worklist& w, int64_t list) {
  RectMerger merger(2);
  for (int64_t r = 0; r < w.rows && merger.bytes() <= kMaxMapBytes; ++r) {
    std::vector<RectMerger::Run> runs;
    for (const TileRun& t : tile_runs(w.row(list, r))) {
      runs.push_back({t.begin, t.end, t.tile_class == TileClass::full, 0});
    }
    merger.add_row(r, std::move(runs));
  }
  merger.finish(w.rows);
  return {merger.paths(),
          {"url(#p)", hex(kFull)},
          1,
          1,
          merger.bytes() <= kMaxMapBytes};
}

Map shaded_map(const Worklist& w, int64_t list, int64_t down, int64_t across) {
  const Cells cells = make_cells(w, list, down, across);
  RectMerger merger(25);
  for (int64_t r = 0; r < cells.rows && merger.bytes() <= kMaxMapBytes; ++r) {
    std::vector<RectMerger::Run> runs;
    for (int64_t c = 0; c < cells.columns; ++c) {
      const Cell& cell = cells.at(r, c);
      const size_t color = 5 * fourths(cell.partial, cell.total) +
                           fourths(cell.full, cell.total);
      if (color == 0) continue;
      if (!runs.empty() && runs.back().end == c && runs.back().color == color) {
        runs.back().end = c + 1;
      } else {
        runs.push_back({c, c + 1, color, 0});
      }
    }
    merger.add_row(r, std::move(runs));
  }
  merger.finish(cells.rows);
  Map map{merger.paths(), {}, down, across, merger.bytes() <= kMaxMapBytes};
  for (size_t i = 0; i < 25; ++i) {
    const size_t row = i / 5, column = i % 5;
    map.fills.push_back(hex(
        mix(static_cast<double>(row) / 4, static_cast<double>(column) / 4)));
  }
  return map;
}

Map make_map(const Worklist& w, int64_t list) {
  if (w.rows <= kExactTiles && w.columns <= kExactTiles) {
    Map map = exact_map(w, list);
    if (map.fits) return map;
  }
  // Halves the resolution until the map fits; a single cell always fits.
  for (int64_t side = kCells;; side /= 2) {
    Map map =
        shaded_map(w, list, ceil_div(w.rows, side), ceil_div(w.columns, side));
    if (map.fits) return map;
  }
}

// One of the two axes of the picture.
struct Axis {
  int64_t tokens = 0;
  int64_t tile = 0;
  double length = 0;  // pixels
  const std::vector<DocumentSpan>* spans = nullptr;

  double at(int64_t token) const {
    return length * static_cast<double>(token) / static_cast<double>(tokens);
  }
  double tile_pixels() const {
    return length * static_cast<double>(tile) / static_cast<double>(tokens);
  }
};

class SvgPicture : SvgLines {
 public:
  SvgPicture(const Input& in, const Parts& parts)
      : in_(in),
        parts_(parts),
        map_(make_map(in.batch.plan().forward, parts.list)),
        keys_{in.batch.plan().kv_len, in.batch.plan().tile.kv, 0, &parts.keys},
        queries_{in.batch.plan().q_len, in.batch.plan().tile.q, 0,
                 &parts.queries} {
    size_axes();
    wrap_title();
    left_ = 92;
    width_ = std::max(600.0, left_ + keys_.length + 32);
    top_ = 60 + 20 * static_cast<double>(title_.size()) + 48;
  }

  std::string draw() {
    const double bottom = top_ + queries_.length;
    height_ = bottom + 34 + 24 * 2 + 20 * notes();
    out_ += svg_start(width_, height_,
                      escape_markup(clean_text(in_.mask, 2000, false)),
                      escape_markup(subtitle(in_)));
    if (!map_.shaded()) hatch();
    out_ += svg_paper(width_, height_);
    heading();
    axis(keys_, true);
    axis(queries_, false);
    tiles();
    legend(bottom + 40);
    out_ += "</svg>\n";
    return std::move(out_);
  }

 private:
  // Uses one scale for both axes if that leaves each readable.
  void size_axes() {
    const auto q = static_cast<double>(queries_.tokens);
    const auto k = static_cast<double>(keys_.tokens);
    double scale = kMapSide / std::max(q, k);
    const auto widest =
        static_cast<double>(std::max(std::min(keys_.tile, keys_.tokens),
                                     std::min(queries_.tile, queries_.tokens)));
    scale = std::min(scale, kMaxTile / widest);
    // A whole number of pixels per tile keeps all tiles alike.
    const double pixels = scale * static_cast<double>(keys_.tile);
    if (keys_.tile == queries_.tile && pixels >= 2) {
      scale *= std::floor(pixels + 1e-9) / pixels;
    }
    keys_.length = std::max(kMinSide, k * scale);
    queries_.length = std::max(kMinSide, q * scale);
    stretched_ =
        keys_.length > k * scale + 1 || queries_.length > q * scale + 1;
    unit_ = scale;
  }

  // Breaks the title at spaces near the width; a long mask ends in a mark.
  void wrap_title() {
    const size_t wide =
        static_cast<size_t>(std::max(540.0, keys_.length + 60) / 8.5);
    std::string text = clean_text(in_.mask, wide * kTitleLines, false);
    while (text.size() > wide && title_.size() + 1 < kTitleLines) {
      size_t cut = text.rfind(' ', wide);
      if (cut == std::string::npos || cut < wide / 2) cut = wide;
      // Does not cut inside a UTF-8 sequence.
      while (cut < text.size() && (text[cut] & 0xc0) == 0x80) ++cut;
      title_.push_back(text.substr(0, cut));
      text.erase(0, text.find_first_not_of(' ', cut) == std::string::npos
                        ? text.size()
                        : text.find_first_not_of(' ', cut));
    }
    title_.push_back(text);
  }

  int notes() const { return (map_.shaded() ? 1 : 0) + (stretched_ ? 1 : 0); }

  // Draws a hatch on partial tiles if it is visible, so that the class is shown
  // without colour too. `p` has tile units, `l` pixels.
  void hatch() {
    const double across = keys_.tile_pixels();
    const double down = queries_.tile_pixels();
    const std::string lines =
        std::min(across, down) < 8
            ? ""
            : "<rect width='1.4' height='5' fill='#fff' fill-opacity='.38'/>";
    const auto pattern = [&](const char* id, double x, double y) {
      put("<pattern id='{}' width='5' height='5' "
          "patternUnits='userSpaceOnUse' patternTransform="
          "'scale({:.6f} {:.6f}) rotate(45)'>"
          "<rect width='5' height='5' fill='{}'/>{}</pattern>",
          id, 1 / x, 1 / y, hex(kPartial), lines);
    };
    out_ += "<defs>\n";
    pattern("p", across, down);
    pattern("l", 1, 1);
    out_ += "</defs>\n";
  }

  void heading() {
    double y = 40;
    for (const std::string& line : title_) {
      put("<text class='m' x='28' y='{}' xml:space='preserve'>{}</text>",
          num(y), escape_markup(line));
      y += 20;
    }
    put("<text class='s' x='28' y='{}'>{}</text>", num(y),
        escape_markup(subtitle(in_)));
  }

  // Draws token numbers, then the band of documents next to the map.
  void axis(const Axis& a, bool across) {
    put("<g transform='translate({} {})'>", num(left_), num(top_));
    const double gap = a.spans->empty() ? 6 : 24;
    if (across) {
      put("<text class='k' x='-8' y='{}' text-anchor='end'>keys</text>",
          num(-std::max(gap, 20.0) - 4));
    } else {
      put("<text class='k' x='{}' y='-6' text-anchor='end'>queries</text>",
          num(-gap - 4));
    }
    ticks(a, across, gap);
    if (!a.spans->empty()) band(a, across);
    out_ += "</g>\n";
  }

  void ticks(const Axis& a, bool across, double gap) {
    const double label =
        across ? 8.0 + 6.5 * static_cast<double>(with_commas(a.tokens).size())
               : 18;
    int64_t step = a.tile;
    while (a.at(step) < label * 1.35 || a.at(step) < 40) {
      step *= 2;
      if (step >= a.tokens) break;
    }
    std::string marks;
    for (int64_t t = 0; t < a.tokens; t += step) {
      if (t > 0 && a.length - a.at(t) < label * 0.4) break;
      const std::string at = num(a.at(t));
      if (across) {
        marks += fmt::format("M{} {}v4", at, num(-gap - 2));
        put("<text class='n' x='{}' y='{}'>{}</text>", num(a.at(t) + 3),
            num(-gap - 4), with_commas(t));
      } else {
        marks += fmt::format("M{} {}h4", num(-gap - 2), at);
        put("<text class='n' x='{}' y='{}' text-anchor='end'>{}</text>",
            num(-gap - 4), num(a.at(t) + (t == 0 ? 8 : 4)), with_commas(t));
      }
    }
    put("<path d='{}' stroke='#9ca3af' fill='none'/>", marks);
  }

  static const char* tone(const DocumentSpan& s) {
    if (s.kind == Kind::padding) return "#f3f4f6";
    if (s.kind == Kind::outside) return "#fff";
    return "";
  }

  // Adjacent documents alternate in colour; if several share a pixel, the band
  // is grey.
  void band(const Axis& a, bool across) {
    if (static_cast<int64_t>(a.spans->size()) > kMaxBands) {
      crowded_band(a, across);
      return;
    }
    bool odd = false;
    for (const DocumentSpan& s : *a.spans) {
      const double from = a.at(s.begin);
      const double size = a.at(s.end) - from;
      const bool real = s.kind == Kind::document;
      if (real) odd = !odd;
      box(from, size, real ? (odd ? "#c9d3e0" : "#a9b8cb") : tone(s), across);
      std::string text = with_commas(s.end - s.begin);
      if (!real) text = s.kind == Kind::padding ? "padding" : "no key";
      const std::string name = fmt::format("doc {}: {}", s.id, text);
      if (real && 5.8 * static_cast<double>(name.size()) + 6 < size) {
        text = name;
      }
      if (5.8 * static_cast<double>(text.size()) + 4 > size) continue;
      const std::string middle = num(from + size / 2);
      if (across) {
        put("<text class='b' text-anchor='middle' x='{}' y='-7.5'>{}</text>",
            middle, text);
      } else {
        put("<text class='b' text-anchor='middle' transform="
            "'translate(-8 {}) rotate(-90)'>{}</text>",
            middle, text);
      }
    }
  }

  void crowded_band(const Axis& a, bool across) {
    const auto bins = static_cast<int64_t>(a.length);
    double from = 0;
    const char* last = "";
    for (int64_t b = 0; b <= bins; ++b) {
      const char* fill = "end";
      if (b < bins) {
        const SpanRange r = spans_in(
            *a.spans, a.tokens * b / bins,
            std::max(a.tokens * b / bins + 1, a.tokens * (b + 1) / bins));
        const DocumentSpan& s = (*a.spans)[r.first];
        fill = r.count > 1                ? "#8496ad"
               : s.kind != Kind::document ? tone(s)
               : r.first % 2 == 0         ? "#c9d3e0"
                                          : "#a9b8cb";
      }
      if (std::string_view(fill) == last) continue;
      const double at =
          a.length * static_cast<double>(b) / static_cast<double>(bins);
      if (*last) box(from, at - from, last, across);
      from = at;
      last = fill;
    }
  }

  void box(double from, double size, const char* fill, bool across) {
    const std::string a = num(from);
    const std::string n = num(size);
    if (across) {
      put("<rect x='{}' y='-20' width='{}' height='17' fill='{}'/>", a, n,
          fill);
    } else {
      put("<rect x='-20' y='{}' width='17' height='{}' fill='{}'/>", a, n,
          fill);
    }
  }

  void tiles() {
    const std::string w = num(keys_.length);
    const std::string h = num(queries_.length);
    put("<rect x='{}' y='{}' width='{}' height='{}' fill='{}'/>", num(left_),
        num(top_), w, h, hex(kEmpty));
    // Units are cells; the nested svg clips ragged ends at the last token.
    const double across = static_cast<double>(keys_.tokens) /
                          static_cast<double>(keys_.tile * map_.across);
    const double down = static_cast<double>(queries_.tokens) /
                        static_cast<double>(queries_.tile * map_.down);
    put("<svg x='{}' y='{}' width='{}' height='{}' viewBox='0 0 {:.6f} "
        "{:.6f}' preserveAspectRatio='none' shape-rendering='crispEdges'>",
        num(left_), num(top_), w, h, across, down);
    for (size_t i = 0; i < map_.paths.size(); ++i) {
      if (map_.paths[i].empty()) continue;
      put("<path fill='{}' d='{}'/>", map_.fills[i], map_.paths[i]);
    }
    out_ += "</svg>\n";
    if (!map_.shaded()) grid();
    boundaries();
  }

  // Draws lines between tiles if there is room for them.
  void grid() {
    std::string d;
    const double x = keys_.tile_pixels();
    const double y = queries_.tile_pixels();
    if (x >= 6) {
      for (int64_t t = keys_.tile; t < keys_.tokens; t += keys_.tile) {
        d += fmt::format("M{} 0v{}", num(keys_.at(t)), num(queries_.length));
      }
    }
    if (y >= 6) {
      for (int64_t t = queries_.tile; t < queries_.tokens; t += queries_.tile) {
        d += fmt::format("M0 {}h{}", num(queries_.at(t)), num(keys_.length));
      }
    }
    if (d.empty()) return;
    put("<path transform='translate({} {})' d='{}' stroke='#fff' "
        "stroke-width='{}' fill='none'/>",
        num(left_), num(top_), d, std::min(x, y) >= 14 ? "1" : ".6");
  }

  // Draws faint lines across the whole map where documents change.
  void boundaries() {
    std::string d;
    const auto add = [&](const Axis& a, bool across) {
      const auto n = static_cast<double>(a.spans->size());
      if (n < 2 || a.length / n < 8) return;
      for (size_t i = 1; i < a.spans->size(); ++i) {
        const std::string at = num(a.at((*a.spans)[i].begin));
        d += across ? fmt::format("M{} -3v{}", at, num(queries_.length + 3))
                    : fmt::format("M-3 {}h{}", at, num(keys_.length + 3));
      }
    };
    add(keys_, true);
    add(queries_, false);
    if (d.empty()) return;
    put("<path transform='translate({} {})' d='{}' stroke='#1f2937' "
        "stroke-opacity='.35' stroke-width='.8' stroke-dasharray='2 3' "
        "fill='none'/>",
        num(left_), num(top_), d);
  }

  void legend(double y) {
    const int64_t total = parts_.total();
    double x = 28;
    const auto swatch = [&](const std::string& fill, double wide) {
      put("<rect x='{}' y='{}' width='{}' height='14' rx='2' fill='{}'/>",
          num(x), num(y - 11), num(wide), fill);
      x += wide;
    };
    const auto item = [&](const std::string& fill, const char* name,
                          int64_t n) {
      const std::string count =
          fmt::format("{} ({})", with_commas(n), percent(n, total));
      swatch(fill, 14);
      put("<text x='{}' y='{}'><tspan class='k'>{}</tspan> {}</text>",
          num(x + 6), num(y), name, count);
      x += 34 + 7.4 * static_cast<double>(std::string_view(name).size()) +
           6.6 * static_cast<double>(count.size());
    };
    item(hex(kFull), "full", parts_.full);
    item(map_.shaded() ? hex(kPartial) : "url(#l)", "partial", parts_.partial);
    item(hex(kEmpty), "empty", parts_.empty);
    if (map_.shaded()) {
      for (const auto& [p, f] : {std::pair{0.0, 1.0}, {.5, .5}, {1.0, 0.0}}) {
        for (double share : {.25, .5, .75, 1.0}) {
          swatch(hex(mix(p * share, f * share)), 14);
        }
        x += 6;
      }
    }
    y += 24;
    std::string text = fmt::format(
        "density {}, paid pairs {} ({})", percent(parts_.active(), total),
        with_commas(parts_.paid), ratio_text(parts_.paid, parts_.needed));
    if (parts_.documents > 0) {
      text += fmt::format(", {} document{}", with_commas(parts_.documents),
                          parts_.documents == 1 ? "" : "s");
    }
    put("<text x='28' y='{}'>{}</text>", num(y), text);
    if (map_.shaded()) {
      y += 20;
      put("<text class='s' x='28' y='{}'>Too many tiles to tell apart: each "
          "cell shades {} x {} tiles by their share of full, both or "
          "partial.</text>",
          num(y), map_.down, map_.across);
    }
    if (stretched_) {
      y += 20;
      put("<text class='s' x='28' y='{}'>The axes are drawn to different "
          "scales.</text>",
          num(y));
    }
  }

  const Input& in_;
  const Parts& parts_;
  Map map_;
  Axis keys_;
  Axis queries_;
  bool stretched_ = false;
  double unit_ = 0;
  std::vector<std::string> title_;
  double left_ = 0;
  double top_ = 0;
  double width_ = 0;
  double height_ = 0;
};

}  // namespace

Result<std::string> draw_svg(const Input& input) {
  if (Result<void> r = check_input(input); !r) return r.error();
  const Parts parts = make_parts(input, input.batch_row, input.head);
  return SvgPicture(input, parts).draw();
}

}  // namespace tessera::picture
