// picture/text.cc: the tiles as lines for a terminal, with or without
// colour, in Unicode or ASCII.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/fail.h"
#include "base/integers.h"
#include "picture/labels.h"
#include "picture/parts.h"

namespace tessera::picture {
namespace {

using Kind = DocumentSpan::Kind;

// The map is at most this large, so that one screen shows it.
constexpr int64_t kMaxWide = 128;
constexpr int64_t kMaxLines = 64;
// Tile rows are merged to no fewer than this many, even in a very wide plan.
constexpr int64_t kFewRows = 16;
// Small plans are enlarged up to this many lines and characters.
constexpr int64_t kSmallLines = 16;
constexpr int64_t kSmallWide = 32;

// 256-colour palette entries; ramps run from few active tiles to all.
constexpr int kEmptyColor = 236;
constexpr std::array<int, 4> kFullRamp{24, 31, 38, 39};
constexpr std::array<int, 4> kPartialRamp{94, 136, 178, 214};

struct Layout {
  int64_t down = 1;  // tiles in a cell
  int64_t across = 1;
  int64_t chars = 1;    // characters a cell is wide
  int64_t lines = 1;    // lines a cell is high
  bool halves = false;  // two cells per character, stacked
  int64_t gutter = 0;   // width of the token numbers on the left
};

// 0: no active tile; 1 to 3: increasing shares of active tiles; 4: all tiles
// full or, if colours show the class, all partial.
int level(const Cell& c, bool color) {
  if (c.active() == 0) return 0;
  if (c.full == c.total || (color && c.partial == c.total)) return 4;
  if (3 * c.active() < c.total) return 1;
  return 3 * c.active() < 2 * c.total ? 2 : 3;
}

bool mostly_full(const Cell& c) { return c.full > c.partial; }

int cell_color(const Cell& c) {
  const int l = level(c, true);
  if (l == 0) return kEmptyColor;
  const auto at = static_cast<size_t>(l - 1);
  return mostly_full(c) ? kFullRamp[at] : kPartialRamp[at];
}

std::string paint(const std::string& text, int fore, bool color) {
  return color ? fmt::format("\x1b[38;5;{}m{}\x1b[0m", fore, text) : text;
}

// The least 2^k or 1.5 * 2^k >= n, so that axis numbers are round.
int64_t round_scale(int64_t n) {
  int64_t power = 1;
  while (power < n) power *= 2;
  return power >= 4 && power / 4 * 3 >= n ? power / 4 * 3 : power;
}

Layout make_layout(const Input& in, bool ids) {
  const Plan& plan = in.batch.plan();
  const Worklist& w = plan.forward;
  Layout l;
  l.gutter = static_cast<int64_t>(std::to_string(plan.q_len - 1).size());
  const int64_t room =
      std::min(kMaxWide, in.columns - l.gutter - 1 - (ids ? 2 : 0));
  if (2 * w.columns <= room) {
    l.down = ceil_div(w.rows, kMaxLines);
    l.lines = std::clamp(std::min(kSmallLines / w.rows,
                                  std::min(kSmallWide, room) / (2 * w.columns)),
                         int64_t{1}, int64_t{4});
    l.chars = 2 * l.lines;
    return l;
  }
  l.halves = in.color && in.unicode;
  l.across = round_scale(ceil_div(w.columns, room));
  // A character is about twice as tall as wide.
  const int64_t tall = l.halves ? 1 : 2;
  l.down = l.across * plan.tile.kv * tall / plan.tile.q;
  l.down = std::min(l.down, w.rows / kFewRows);
  l.down = std::max({int64_t{1}, l.down,
                     ceil_div(w.rows, l.halves ? 2 * kMaxLines : kMaxLines)});
  return l;
}

// The mark for tokens [begin, end) of an axis.
char span_mark(const std::vector<DocumentSpan>& spans, int64_t begin,
               int64_t end) {
  const SpanRange r = spans_in(spans, begin, end);
  if (r.count == 0) return ' ';
  if (r.count == 2) return '/';
  if (r.count > 2) return '*';
  const DocumentSpan& s = spans[r.first];
  if (s.kind == Kind::padding) return '-';
  if (s.kind == Kind::outside) return ' ';
  return static_cast<char>('A' + s.order % 26);
}

// Letters alternate between two tones, so that neighbours differ.
std::string paint_mark(char mark, bool color) {
  const bool letter = mark >= 'A' && mark <= 'Z';
  const int tone = !letter ? 244 : (mark - 'A') % 2 == 0 ? 255 : 110;
  return mark == ' ' ? " " : paint(std::string(1, mark), tone, color);
}

std::string glyph(int l, bool unicode) {
  static constexpr std::array<const char*, 5> fancy{"·", "░", "▒", "▓", "█"};
  static constexpr std::array<const char*, 5> plain{".", ":", "+", "%", "#"};
  return (unicode ? fancy : plain)[static_cast<size_t>(l)];
}

// The glyph of a cell of exactly one tile: its class.
std::string tile_glyph(TileClass c, bool unicode) {
  if (c == TileClass::empty) return glyph(0, unicode);
  return glyph(c == TileClass::full ? 4 : 2, unicode);
}

TileClass class_of(const Cell& c) {
  return c.full > 0      ? TileClass::full
         : c.partial > 0 ? TileClass::partial
                         : TileClass::empty;
}

int class_color(TileClass c) {
  return c == TileClass::full      ? kFullRamp[3]
         : c == TileClass::partial ? kPartialRamp[3]
                                   : 240;
}

class TextPicture {
 public:
  TextPicture(const Input& in, const Parts& parts)
      : in_(in),
        parts_(parts),
        ids_(!parts.queries.empty() || !parts.keys.empty()),
        layout_(make_layout(in, ids_)),
        cells_(make_cells(in.batch.plan().forward, parts.list, layout_.down,
                          layout_.across)) {}

  std::string draw() {
    out_ += clean_text(in_.mask, 4000, !in_.unicode) + "\n";
    out_ += dim(subtitle(in_)) + "\n\n";
    key_axis();
    if (layout_.halves) {
      for (int64_t r = 0; r < cells_.rows; r += 2) line(r, 2, true);
    } else {
      for (int64_t r = 0; r < cells_.rows; ++r) {
        for (int64_t i = 0; i < layout_.lines; ++i) line(r, 1, i == 0);
      }
    }
    out_ += "\n";
    legend();
    return std::move(out_);
  }

 private:
  bool single() const { return layout_.down == 1 && layout_.across == 1; }
  std::string dim(const std::string& s) const {
    return paint(s, 245, in_.color);
  }
  int64_t key_token(int64_t cell) const {
    return std::min(in_.batch.plan().kv_len,
                    cell * layout_.across * in_.batch.plan().tile.kv);
  }
  int64_t query_token(int64_t cell) const {
    return std::min(in_.batch.plan().q_len,
                    cell * layout_.down * in_.batch.plan().tile.q);
  }
  std::string margin() const {
    return std::string(static_cast<size_t>(layout_.gutter + 1 + (ids_ ? 2 : 0)),
                       ' ');
  }

  // Writes token numbers over every eighth (or so) cell, then document marks.
  void key_axis() {
    const int64_t longest =
        static_cast<int64_t>(std::to_string(in_.batch.plan().kv_len).size()) +
        1;
    int64_t step = layout_.lines > 1 ? 1 : 4;
    while (step * layout_.chars < longest + 2) step *= 2;
    std::string numbers;
    for (int64_t c = 0; c < cells_.columns; c += step) {
      numbers.resize(static_cast<size_t>(c * layout_.chars), ' ');
      numbers += std::to_string(key_token(c));
    }
    const auto room = static_cast<size_t>(
        in_.columns - static_cast<int64_t>(margin().size()));
    if (numbers.size() > room) {
      numbers.resize(numbers.find_last_of(' ', room) + 1);
    }
    numbers.resize(numbers.find_last_not_of(' ') + 1);
    out_ += margin() + dim(numbers) + "\n";
    if (parts_.keys.empty()) return;
    out_ += margin();
    for (int64_t c = 0; c < cells_.columns; ++c) {
      const char m = span_mark(parts_.keys, key_token(c), key_token(c + 1));
      for (int64_t i = 0; i < layout_.chars; ++i) {
        out_ += paint_mark(m, in_.color);
      }
    }
    out_ += "\n";
  }

  // Writes the first line of `high` rows of cells, or a repeat of it.
  void line(int64_t r, int64_t high, bool first) {
    const bool number = first && (r % (4 * high) == 0 || layout_.lines > 1);
    out_ += dim(fmt::format(
        "{:>{}}", number ? std::to_string(query_token(r)) : std::string(),
        layout_.gutter));
    out_ += " ";
    if (ids_) {
      out_ += paint_mark(
          span_mark(parts_.queries, query_token(r), query_token(r + high)),
          in_.color);
      out_ += " ";
    }
    layout_.halves ? half_cells(r) : whole_cells(r);
    out_ += "\n";
  }

  void whole_cells(int64_t r) {
    int last = -1;
    for (int64_t c = 0; c < cells_.columns; ++c) {
      const Cell& cell = cells_.at(r, c);
      const int fore = single() ? class_color(class_of(cell))
                       : level(cell, in_.color) == 0 ? 240
                                                     : cell_color(cell);
      if (in_.color && fore != last) out_ += fmt::format("\x1b[38;5;{}m", fore);
      last = fore;
      const std::string g = single()
                                ? tile_glyph(class_of(cell), in_.unicode)
                                : glyph(level(cell, in_.color), in_.unicode);
      for (int64_t i = 0; i < layout_.chars; ++i) out_ += g;
    }
    if (in_.color) out_ += "\x1b[0m";
  }

  // The foreground colour is the upper cell, the background the lower one.
  void half_cells(int64_t r) {
    int fore = -1;
    int back = -1;
    const bool below = r + 1 < cells_.rows;
    for (int64_t c = 0; c < cells_.columns; ++c) {
      const int upper = cell_color(cells_.at(r, c));
      const int lower = below ? cell_color(cells_.at(r + 1, c)) : -1;
      if (upper != fore) out_ += fmt::format("\x1b[38;5;{}m", upper);
      if (lower != back && below) out_ += fmt::format("\x1b[48;5;{}m", lower);
      fore = upper;
      back = lower;
      out_ += "▀";
    }
    out_ += "\x1b[0m";
  }

  std::string swatch(int l, const std::array<int, 4>& ramp) const {
    const int fore = l == 0 ? (layout_.halves ? kEmptyColor : 240)
                            : ramp[static_cast<size_t>(l - 1)];
    return paint(layout_.halves ? "█" : glyph(l, in_.unicode), fore, in_.color);
  }

  void legend() {
    const int64_t total = parts_.total();
    const auto count = [&](const char* name, int64_t n) {
      return fmt::format("{} {} ({})", name, with_commas(n), percent(n, total));
    };
    const auto part = [&](TileClass c, const char* name, int64_t n) {
      const std::string g = tile_glyph(c, in_.unicode);
      // If cells mix classes, glyphs show shares, which are explained below.
      if (!single()) return paint(count(name, n), class_color(c), in_.color);
      return paint(layout_.halves ? std::string("██") : g + g,
                   layout_.halves && c == TileClass::empty ? kEmptyColor
                                                           : class_color(c),
                   in_.color) +
             " " + count(name, n);
    };
    out_ +=
        fmt::format("{}  {}  {}\n", part(TileClass::full, "full", parts_.full),
                    part(TileClass::partial, "partial", parts_.partial),
                    part(TileClass::empty, "empty", parts_.empty));
    out_ += fmt::format("density {} of {} tiles; paid pairs {}, {}\n",
                        percent(parts_.active(), total), with_commas(total),
                        with_commas(parts_.paid),
                        ratio_text(parts_.paid, parts_.needed));
    if (single()) {
      out_ += dim("one cell is one tile") + "\n";
    } else {
      scale_note();
    }
    if (ids_) document_note();
  }

  void scale_note() {
    out_ += dim(fmt::format("one cell is {} x {} tiles (down x across)",
                            layout_.down, layout_.across)) +
            "\n";
    const auto ramp = [&](const std::array<int, 4>& colors, const char* all) {
      return fmt::format("{} under 1/3  {} under 2/3  {} more  {} {}",
                         swatch(1, colors), swatch(2, colors),
                         swatch(3, colors), swatch(4, colors), all);
    };
    out_ += "active in a cell: " + swatch(0, kFullRamp) + " none";
    if (!in_.color) {
      out_ += "  " + ramp(kFullRamp, "all full") + "\n";
      return;
    }
    out_ += "\n  mostly full     " + ramp(kFullRamp, "all full") + "\n";
    out_ += "  mostly partial  " + ramp(kPartialRamp, "all partial") + "\n";
  }

  void document_note() {
    out_ += dim(fmt::format(
        "{} document{}: a letter each (Z, then A again), / two meet, * more, - "
        "padding",
        with_commas(parts_.documents), parts_.documents == 1 ? "" : "s"));
    out_ += "\n";
  }

  const Input& in_;
  const Parts& parts_;
  bool ids_;
  Layout layout_;
  Cells cells_;
  std::string out_;
};

}  // namespace

Result<std::string> draw_text(const Input& input) {
  if (Result<void> r = check_input(input); !r) return r.error();
  if (input.columns < kMinTextColumns) {
    return invalid("show", "a text picture takes {} columns, found {}",
                   kMinTextColumns, input.columns);
  }
  const Parts parts = make_parts(input, input.batch_row, input.head);
  return TextPicture(input, parts).draw();
}

}  // namespace tessera::picture
