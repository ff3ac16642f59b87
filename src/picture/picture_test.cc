// picture/picture_test.cc: reads every picture back and compares it, tile for
// tile, with its plan.
#include "picture/picture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <set>

#include "picture/labels.h"
#include "picture/parts.h"
#include "plan/batch_state.h"

namespace tessera::picture {
namespace {

using Kind = DocumentSpan::Kind;
using Grid = std::vector<std::vector<int>>;  // classes by row and column

// A plan of arbitrary tiles, not of a mask: a picture shows any plan.
struct Sample {
  Plan plan;
  Facts facts;
  std::vector<Grid> lists;
  std::vector<int32_t> ids;
  std::vector<int32_t> q_ids;
  std::vector<int32_t> offsets;

  Input input(std::string mask = "causal & documents") const {
    auto state = std::make_shared<Batch::State>();
    state->plan = plan;
    state->facts = facts;
    return {BatchMaker::of_state(std::move(state)), std::move(mask)};
  }
};

void put_lists(Sample& s) {
  Plan& p = s.plan;
  Worklist& w = p.forward;
  w.lists = p.batch * p.heads;
  w.rows = (p.q_len + p.tile.q - 1) / p.tile.q;
  w.columns = (p.kv_len + p.tile.kv - 1) / p.tile.kv;
  w.row_start = {0};
  w.entries.clear();
  p.legal_pairs.assign(s.lists.size(), 12345);
  for (const Grid& grid : s.lists) {
    for (const auto& row : grid) {
      for (size_t c = 0; c < row.size(); ++c) {
        if (row[c] == 0) continue;
        w.entries.push_back(
            Entry::of(static_cast<int64_t>(c), static_cast<TileClass>(row[c])));
      }
      w.row_start.push_back(static_cast<uint32_t>(w.entries.size()));
    }
  }
}

std::vector<int32_t> random_ids(std::mt19937& g, int64_t n) {
  std::vector<int32_t> ids;
  while (static_cast<int64_t>(ids.size()) < n) {
    const int32_t id = static_cast<int32_t>(g() % 9) - 2;
    for (size_t i = g() % 40 + 1; i > 0; --i) ids.push_back(id);
  }
  ids.resize(static_cast<size_t>(n));
  return ids;
}

// `clumps`: how alike neighbours are, 1 for noise.
Sample make_sample(std::mt19937& g, int64_t rows, int64_t columns,
                   int64_t batch, int64_t heads, uint32_t clumps) {
  Sample s;
  Plan& p = s.plan;
  p.batch = batch;
  p.heads = heads;
  p.tile = {8 + static_cast<int64_t>(g() % 30),
            8 + static_cast<int64_t>(g() % 30)};
  p.q_len = rows * p.tile.q - static_cast<int64_t>(g()) % p.tile.q;
  p.kv_len = columns * p.tile.kv - static_cast<int64_t>(g()) % p.tile.kv;
  for (int64_t l = 0; l < batch * heads; ++l) {
    Grid grid(static_cast<size_t>(rows),
              std::vector<int>(static_cast<size_t>(columns)));
    for (size_t r = 0; r < grid.size(); ++r) {
      if (r > 0 && g() % clumps != 0) {
        grid[r] = grid[r - 1];
        continue;
      }
      int kind = 0;
      for (int& tile : grid[r]) {
        if (g() % clumps == 0) kind = static_cast<int>(g() % 3);
        tile = kind;
      }
    }
    s.lists.push_back(grid);
  }
  put_lists(s);
  return s;
}

void give_ids(Sample& s, std::mt19937& g, bool q_ids, bool offsets) {
  s.ids = random_ids(g, s.plan.batch * s.plan.kv_len);
  s.facts.doc_ids = Ints(s.ids);
  if (q_ids) {
    s.q_ids = random_ids(g, s.plan.batch * s.plan.q_len);
    s.facts.q_doc_ids = Ints(s.q_ids);
  }
  if (offsets) {
    for (int64_t b = 0; b < s.plan.batch; ++b) {
      s.offsets.push_back(static_cast<int32_t>(g() % 200) - 100);
    }
    s.facts.q_offsets = Ints(s.offsets);
  }
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines(1);
  for (char c : text) {
    if (c == '\n') {
      lines.emplace_back();
    } else {
      lines.back().push_back(c);
    }
  }
  return lines;
}

std::string without_color(const std::string& text) {
  return std::regex_replace(text, std::regex("\x1b\\[[0-9;]*m"), "");
}

size_t characters(const std::string& text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

// The document of a query or key, by definition: an id, -1 for padding, -2 for
// a query without a key position.
int64_t owner(const Sample& s, int64_t batch_row, bool query, int64_t token) {
  const auto at = [&](const std::vector<int32_t>& ids, int64_t width,
                      int64_t i) -> int64_t {
    const int32_t id = ids[static_cast<size_t>(batch_row * width + i)];
    return id < 0 ? -1 : id;
  };
  if (!query) return at(s.ids, s.plan.kv_len, token);
  if (!s.q_ids.empty()) return at(s.q_ids, s.plan.q_len, token);
  const int64_t offset = s.offsets.empty()
                             ? s.plan.kv_len - s.plan.q_len
                             : s.offsets[static_cast<size_t>(batch_row)];
  const int64_t position = token + offset;
  if (position < 0 || position >= s.plan.kv_len) return -2;
  return at(s.ids, s.plan.kv_len, position);
}

TEST(PictureParts, SpansCoverEachTokenWithItsOwner) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 g(seed);
    Sample s = make_sample(g, g() % 6 + 1, g() % 6 + 1, 2, 1, 2);
    give_ids(s, g, seed % 3 == 0, seed % 2 == 0);
    const Parts p = make_parts(s.input(), 1, 0);
    std::set<int64_t> ids;
    for (bool query : {false, true}) {
      const auto& spans = query ? p.queries : p.keys;
      int64_t token = 0;
      int64_t before = -9;
      for (const DocumentSpan& span : spans) {
        ASSERT_EQ(span.begin, token);
        ASSERT_LT(span.begin, span.end);
        for (; token < span.end; ++token) {
          const int64_t is = owner(s, 1, query, token);
          const int64_t shown = span.kind == Kind::document  ? span.id
                                : span.kind == Kind::padding ? -1
                                                             : -2;
          ASSERT_EQ(shown, is) << "token " << token;
          if (is >= 0) ids.insert(is);
        }
        const int64_t now = owner(s, 1, query, token - 1);
        ASSERT_NE(now, before);
        before = now;
      }
      ASSERT_EQ(token, query ? s.plan.q_len : s.plan.kv_len);
    }
    EXPECT_EQ(p.documents, static_cast<int64_t>(ids.size()));
  }
}

TEST(PictureParts, CountsTilesAndPairsOfTheChosenList) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 g(seed);
    Sample s = make_sample(g, g() % 9 + 1, g() % 9 + 1, 2, 3, 2);
    s.plan.legal_pairs[4] = 777;
    const Parts p = make_parts(s.input(), 1, 1);
    int64_t counts[3] = {0, 0, 0};
    int64_t paid = 0;
    for (int64_t q = 0; q < s.plan.q_len; ++q) {
      for (int64_t k = 0; k < s.plan.kv_len; ++k) {
        const int kind = s.lists[4][static_cast<size_t>(q / s.plan.tile.q)]
                                [static_cast<size_t>(k / s.plan.tile.kv)];
        paid += kind != 0;
        if (q % s.plan.tile.q == 0 && k % s.plan.tile.kv == 0) ++counts[kind];
      }
    }
    EXPECT_EQ(p.empty, counts[0]);
    EXPECT_EQ(p.partial, counts[1]);
    EXPECT_EQ(p.full, counts[2]);
    EXPECT_EQ(p.paid, paid);
    EXPECT_EQ(p.needed, 777);
    EXPECT_EQ(p.pairs, s.plan.q_len * s.plan.kv_len);
  }
}

TEST(PictureParts, NumbersReadWell) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1000), "1,000");
  EXPECT_EQ(with_commas(-1234567), "-1,234,567");
  EXPECT_EQ(with_commas(-100), "-100");
  EXPECT_EQ(percent(0, 7), "0%");
  EXPECT_EQ(percent(7, 7), "100%");
  EXPECT_EQ(percent(1, 1000000), "<0.01%");
  EXPECT_EQ(percent(999999, 1000000), ">99.9%");
  EXPECT_EQ(percent(1, 8), "12.5%");
  EXPECT_EQ(ratio_text(3, 2), "1.50x the needed");
  EXPECT_EQ(ratio_text(0, 0), "none needed");
}

TEST(PictureParts, TextIsMadeSafe) {
  EXPECT_EQ(clean_text("a\x1b[31mb\n", 99, true), "a?[31mb?");
  EXPECT_EQ(clean_text("a\xff\xc3\xa9", 99, false), "a\xef\xbf\xbd\xc3\xa9");
  EXPECT_EQ(clean_text("\xe2\x80\xae", 99, false), "\xef\xbf\xbd");
  EXPECT_EQ(clean_text("\xc3\xa9", 99, true), "?");
  EXPECT_EQ(clean_text("abcdef", 3, true), "abc...");
  EXPECT_EQ(clean_text("abc", 3, true), "abc");
  EXPECT_EQ(escape_markup("<a & \"b'>"), "&lt;a &amp; &quot;b&#39;&gt;");
}

// ---- text ----

TEST(PictureText, SmallPlansAreDrawnTileForTile) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 g(seed);
    Sample s = make_sample(g, g() % 20 + 9, g() % 20 + 9, 1, 1, 3);
    Input in = s.input();
    in.unicode = false;
    const auto text = draw_text(in);
    ASSERT_TRUE(text.ok()) << text.error().message;
    const auto lines = lines_of(*text);
    const size_t gutter = std::to_string(s.plan.q_len - 1).size() + 1;
    const Grid& grid = s.lists[0];
    for (size_t r = 0; r < grid.size(); ++r) {
      ASSERT_LT(4 + r, lines.size());
      std::string want;
      for (int kind : grid[r]) want += std::string(2, ".+#"[kind]);
      EXPECT_EQ(lines[4 + r].substr(gutter), want) << "row " << r;
    }
  }
}

TEST(PictureText, EveryLineFitsTheTerminal) {
  for (uint32_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 g(seed);
    Sample s = make_sample(g, g() % (seed % 2 ? 300 : 5) + 1,
                           g() % (seed % 3 ? 400 : 5) + 1, 1, 1, 4);
    give_ids(s, g, false, false);
    Input in = s.input("causal");
    in.columns = kMinTextColumns + static_cast<int64_t>(g() % 150);
    in.color = seed % 2 == 0;
    in.unicode = seed % 5 != 0;
    const auto text = draw_text(in);
    ASSERT_TRUE(text.ok()) << text.error().message;
    EXPECT_EQ(text->find('\x1b') != std::string::npos, in.color);
    const auto lines = lines_of(without_color(*text));
    // Checks the map with its axes only; the sentences around it wrap as any
    // text does.
    for (size_t i = 3; i < lines.size() && !lines[i].empty(); ++i) {
      EXPECT_LE(characters(lines[i]), static_cast<size_t>(in.columns))
          << lines[i];
    }
    EXPECT_LE(lines.size(), 90u);
    if (!in.unicode) {
      EXPECT_TRUE(std::all_of(text->begin(), text->end(), [](char c) {
        return static_cast<uint8_t>(c) < 0x80;
      }));
    }
  }
}

TEST(PictureText, LegendFitsEightyColumns) {
  std::mt19937 g(1);
  Sample s = make_sample(g, 200, 300, 1, 1, 4);
  give_ids(s, g, false, false);
  for (bool color : {false, true}) {
    Input in = s.input();
    in.color = color;
    const auto text = draw_text(in);
    ASSERT_TRUE(text.ok());
    for (const auto& line : lines_of(without_color(*text))) {
      EXPECT_LE(characters(line), 80u) << line;
    }
  }
}

TEST(PictureText, ACellOfManyTilesShowsItsShare) {
  Sample s;
  s.plan.tile = {8, 8};
  s.plan.q_len = 8 * 16;
  s.plan.kv_len = 8 * 256;
  Grid grid(16, std::vector<int>(256, 0));
  // 256 columns on 80 characters: four tiles per cell. Cells 0 to 5 hold none,
  // one, two, three, four full tiles and four partial ones.
  for (auto& row : grid) {
    for (int cell = 0; cell < 5; ++cell) {
      for (int i = 0; i < cell; ++i) row[static_cast<size_t>(4 * cell + i)] = 2;
    }
    for (int i = 20; i < 24; ++i) row[static_cast<size_t>(i)] = 1;
  }
  s.lists = {grid};
  put_lists(s);
  Input in = s.input();
  in.unicode = false;
  const auto text = draw_text(in);
  ASSERT_TRUE(text.ok());
  EXPECT_NE(text->find("one cell is 1 x 4 tiles"), std::string::npos) << *text;
  EXPECT_NE(text->find("  0 .:+%#%..."), std::string::npos) << *text;
}

TEST(PictureText, DocumentsAreMarkedOnBothAxes) {
  Sample s;
  s.plan.tile = {8, 8};
  s.plan.q_len = s.plan.kv_len = 8 * 20;
  s.lists = {Grid(20, std::vector<int>(20, 1))};
  put_lists(s);
  s.ids.assign(160, 5);
  // Two documents meet in tile 1, three in tile 3; the last four are padding.
  for (size_t i = 12; i < 160; ++i) s.ids[i] = 9;
  for (size_t i = 26; i < 28; ++i) s.ids[i] = 3;
  for (size_t i = 128; i < 160; ++i) s.ids[i] = -7;
  s.facts.doc_ids = Ints(s.ids);
  Input in = s.input();
  in.unicode = false;
  const auto text = draw_text(in);
  ASSERT_TRUE(text.ok());
  const std::string marks = "A/B*BBBBBBBBBBBB----";
  std::string twice;
  for (char c : marks) twice += std::string(2, c);
  const auto lines = lines_of(*text);
  EXPECT_EQ(lines[4], std::string(6, ' ') + twice);
  for (size_t r = 0; r < 20; ++r) EXPECT_EQ(lines[5 + r][4], marks[r]) << r;
  EXPECT_NE(text->find("3 documents"), std::string::npos);
}

// ---- svg ----

// Rectangles of each fill inside the map's own coordinates.
std::map<std::string, std::vector<std::array<int64_t, 4>>> svg_rects(
    const std::string& svg) {
  std::map<std::string, std::vector<std::array<int64_t, 4>>> rects;
  const size_t from = svg.find("<svg x=");
  const std::string map = svg.substr(from, svg.find("</svg>", from) - from);
  size_t at = 0;
  while ((at = map.find("<path fill='", at)) != std::string::npos) {
    at += 12;
    auto& list = rects[map.substr(at, map.find('\'', at) - at)];
    const size_t d = map.find("d='", at) + 3;
    const std::string path = map.substr(d, map.find('\'', d) - d);
    const char* c = path.c_str();
    int used = 0;
    long x = 0, y = 0, w = 0, h = 0, back = 0;
    while (std::sscanf(c, "M%ld %ldh%ldv%ldh-%ldz%n", &x, &y, &w, &h, &back,
                       &used) == 5) {
      EXPECT_EQ(w, back);
      list.push_back({x, y, w, h});
      c += used;
    }
    EXPECT_EQ(*c, '\0') << c;
  }
  return rects;
}

// Tags nest and every attribute value is quoted.
void expect_well_formed(const std::string& svg) {
  std::vector<std::string> open;
  const std::regex tag(
      "<(/?)([A-Za-z]+)((?:\\s+[-A-Za-z:]+=(?:'[^'<]*'|\"[^\"<]*\"))*)\\s*(/?)"
      ">");
  std::string rest;
  size_t last = 0;
  for (std::sregex_iterator i(svg.begin(), svg.end(), tag), end; i != end;
       ++i) {
    rest += svg.substr(last, static_cast<size_t>(i->position()) - last);
    last = static_cast<size_t>(i->position() + i->length());
    if ((*i)[1].length()) {
      ASSERT_FALSE(open.empty());
      ASSERT_EQ(open.back(), (*i)[2].str());
      open.pop_back();
    } else if (!(*i)[4].length()) {
      open.push_back((*i)[2]);
    }
  }
  rest += svg.substr(last);
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(rest.find('<'), std::string::npos) << rest.substr(0, 2000);
  const std::regex bare("&(?!amp;|lt;|gt;|quot;|#39;)");
  EXPECT_FALSE(std::regex_search(rest, bare));
}

TEST(PictureSvg, RectanglesAreExactlyTheTiles) {
  for (uint32_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 g(seed);
    Sample s = make_sample(g, g() % 40 + 1, g() % 40 + 1, 2, 1, seed % 6 + 1);
    Input in = s.input();
    in.batch_row = 1;
    const auto svg = draw_svg(in);
    ASSERT_TRUE(svg.ok()) << svg.error().message;
    const Grid& want = s.lists[1];
    Grid got(want.size(), std::vector<int>(want[0].size(), 0));
    for (const auto& [fill, rects] : svg_rects(*svg)) {
      for (const auto& [x, y, w, h] : rects) {
        for (int64_t r = y; r < y + h; ++r) {
          for (int64_t c = x; c < x + w; ++c) {
            int& tile =
                got.at(static_cast<size_t>(r)).at(static_cast<size_t>(c));
            EXPECT_EQ(tile, 0) << "drawn twice";
            tile = fill == "url(#p)" ? 1 : 2;
          }
        }
      }
    }
    EXPECT_EQ(got, want);
  }
}

TEST(PictureSvg, ManyTilesBecomeShadedCellsThatLoseNothing) {
  for (uint32_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 g(seed);
    Sample s = make_sample(g, 700, 1500, 1, 1, 40);
    for (auto& row : s.lists[0]) {
      for (int& tile : row) tile = g() % 50 == 0 ? tile : 0;
    }
    put_lists(s);
    const auto svg = draw_svg(s.input());
    ASSERT_TRUE(svg.ok());
    std::smatch scale;
    ASSERT_TRUE(std::regex_search(*svg, scale,
                                  std::regex("shades ([0-9]+) x ([0-9]+)")));
    const int64_t down = std::stoll(scale[1]);
    const int64_t across = std::stoll(scale[2]);
    std::set<std::pair<int64_t, int64_t>> shown;
    for (const auto& [fill, rects] : svg_rects(*svg)) {
      for (const auto& [x, y, w, h] : rects) {
        for (int64_t r = y; r < y + h; ++r) {
          for (int64_t c = x; c < x + w; ++c) {
            EXPECT_TRUE(shown.insert({r, c}).second);
          }
        }
      }
    }
    std::set<std::pair<int64_t, int64_t>> want;
    for (int64_t r = 0; r < 700; ++r) {
      for (int64_t c = 0; c < 1500; ++c) {
        if (s.lists[0][static_cast<size_t>(r)][static_cast<size_t>(c)]) {
          want.insert({r / down, c / across});
        }
      }
    }
    EXPECT_EQ(shown, want);
  }
}

TEST(PictureSvg, SizeIsBounded) {
  std::mt19937 g(5);
  for (const auto& [rows, columns] :
       {std::pair{512, 512}, {1024, 1024}, {1, 2048}, {2048, 3}, {600, 2}}) {
    Sample s = make_sample(g, rows, columns, 1, 1, 1);
    s.ids.resize(static_cast<size_t>(s.plan.kv_len));
    // As many documents as tokens.
    for (size_t i = 0; i < s.ids.size(); ++i) {
      s.ids[i] = static_cast<int32_t>(i);
    }
    s.facts.doc_ids = Ints(s.ids);
    const auto svg = draw_svg(s.input(std::string(1000000, '&')));
    ASSERT_TRUE(svg.ok());
    EXPECT_LT(svg->size(), 2'000'000u) << rows << " x " << columns;
  }
}

TEST(PictureSvg, HostileTextIsEscaped) {
  for (const std::string mask :
       {"a & b < c > \"d\" 'e' </text><script>alert(1)</script>",
        "\x1b\x01\xff]]>", "\xe2\x80\xae evil"}) {
    std::mt19937 g(5);
    Sample s = make_sample(g, 5, 30, 2, 2, 2);
    give_ids(s, g, false, false);
    const auto svg = draw_svg(s.input(mask));
    ASSERT_TRUE(svg.ok());
    expect_well_formed(*svg);
    EXPECT_EQ(svg->find("<script"), std::string::npos);
    EXPECT_EQ(svg->find('\x1b'), std::string::npos);
  }
}

// ---- html ----

nlohmann::json page_data(const std::string& html) {
  const std::string mark = "<script type=\"application/json\" id=\"data\">";
  const size_t from = html.find(mark) + mark.size();
  return nlohmann::json::parse(
      html.substr(from, html.find("</script>", from) - from));
}

std::vector<uint64_t> varints(const std::string& text) {
  std::vector<uint64_t> out;
  uint32_t bits = 0;
  int have = 0;
  uint64_t v = 0;
  int shift = 0;
  for (char c : text) {
    if (c == '=') break;
    const uint32_t digit = c >= 'a'   ? 26u + static_cast<uint32_t>(c - 'a')
                           : c >= 'A' ? static_cast<uint32_t>(c - 'A')
                           : c >= '0' ? 52u + static_cast<uint32_t>(c - '0')
                           : c == '+' ? 62u
                                      : 63u;
    bits = bits << 6 | digit;
    have += 6;
    if (have < 8) continue;
    have -= 8;
    const uint32_t byte = bits >> have & 255;
    v |= static_cast<uint64_t>(byte & 127) << shift;
    shift += 7;
    if (byte < 128) {
      out.push_back(v);
      v = 0;
      shift = 0;
    }
  }
  EXPECT_EQ(shift, 0);
  return out;
}

TEST(PictureHtml, HoldsEveryListExactly) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 g(seed);
    Sample s = make_sample(g, g() % 30 + 1, g() % 200 + 1, seed % 3 + 1,
                           seed % 2 + 1, seed % 7 + 1);
    give_ids(s, g, seed % 4 == 0, seed % 5 == 0);
    Input in = s.input();
    in.batch_row = s.plan.batch - 1;
    const auto html = draw_html(in);
    ASSERT_TRUE(html.ok()) << html.error().message;
    const nlohmann::json data = page_data(*html);
    EXPECT_TRUE(data["whole"]);
    EXPECT_EQ(data["chosen"], s.plan.list(in.batch_row, 0));
    ASSERT_EQ(data["lists"].size(), s.lists.size());
    for (size_t l = 0; l < s.lists.size(); ++l) {
      const nlohmann::json& list = data["lists"][l];
      const auto words = varints(list["tiles"]);
      size_t at = 0;
      int64_t runs = 0;
      Grid got;
      for (int64_t r = 0; r < s.plan.forward.rows; ++r) {
        const uint64_t tag = words.at(at++);
        if (tag == 0) {
          got.push_back(got.back());
          continue;
        }
        std::vector<int> row;
        for (uint64_t i = 1; i < tag; ++i, ++runs) {
          row.insert(row.end(), words.at(at++), 0);
          const uint64_t word = words.at(at++);
          row.insert(row.end(), word >> 1, word & 1 ? 2 : 1);
        }
        row.resize(static_cast<size_t>(s.plan.forward.columns), 0);
        got.push_back(row);
      }
      EXPECT_EQ(at, words.size());
      EXPECT_EQ(list["runs"], runs);
      EXPECT_EQ(got, s.lists[l]);
      const int64_t b = static_cast<int64_t>(l) / s.plan.heads;
      for (bool query : {false, true}) {
        const auto spans = varints(list[query ? "queries" : "keys"]["data"]);
        int64_t token = 0;
        for (size_t i = 0; i < spans.size(); i += 2) {
          const int64_t is = spans[i + 1] == 0 ? -1
                             : spans[i + 1] == 1
                                 ? -2
                                 : static_cast<int64_t>(spans[i + 1]) - 2;
          for (uint64_t n = spans[i]; n > 0; --n, ++token) {
            ASSERT_EQ(owner(s, b, query, token), is);
          }
        }
        EXPECT_EQ(token, query ? s.plan.q_len : s.plan.kv_len);
      }
    }
  }
}

TEST(PictureHtml, HeadsKeepTheirOwnMasks) {
  std::mt19937 g(3);
  Sample s = make_sample(g, 3, 3, 2, 2, 2);
  Input in = s.input("causal");
  in.head_masks = {"causal", "window(7, 0)"};
  const auto html = draw_html(in);
  ASSERT_TRUE(html.ok());
  const nlohmann::json data = page_data(*html);
  for (size_t l = 0; l < 4; ++l) {
    EXPECT_EQ(data["lists"][l]["mask"], in.head_masks[l % 2]);
  }
}

TEST(PictureHtml, HeadsOfAGroupHaveOneTitle) {
  Plan plan;
  plan.heads = 4;
  const std::vector<std::string> two = {"causal", "full"};
  EXPECT_EQ(titles_of_heads(plan, {"causal"}),
            std::vector<std::string>(4, "causal"));
  EXPECT_EQ(titles_of_heads(plan, two),
            (std::vector<std::string>{"causal", "causal", "full", "full"}));
  plan.heads = 2;
  EXPECT_EQ(titles_of_heads(plan, two), two);
}

TEST(PictureHtml, ManyListsLeaveOnlyTheChosen) {
  std::mt19937 g(3);
  Sample s = make_sample(g, 3, 3, 300, 1, 2);
  Input in = s.input();
  in.batch_row = 299;
  const auto html = draw_html(in);
  ASSERT_TRUE(html.ok());
  const nlohmann::json data = page_data(*html);
  EXPECT_FALSE(data["whole"]);
  ASSERT_EQ(data["lists"].size(), 1u);
  EXPECT_EQ(data["chosen"], 0);
  EXPECT_EQ(data["lists"][0]["batch_row"], 299);
}

TEST(PictureHtml, LargeListsLeaveOnlyTheChosen) {
  std::mt19937 g(3);
  Sample s = make_sample(g, 900, 1500, 8, 1, 1);
  const auto html = draw_html(s.input());
  ASSERT_TRUE(html.ok());
  EXPECT_FALSE(page_data(*html)["whole"]);
  EXPECT_LT(html->size(), 4'000'000u);
}

size_t count_of(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) {
    ++n;
  }
  return n;
}

TEST(PictureHtml, HostileTextIsEscapedAndNothingIsFetched) {
  const std::string mask =
      "</script><script>alert(1)</script><!-- @DATA@ @TITLE@ </title>\xff";
  std::mt19937 g(5);
  Sample s = make_sample(g, 5, 5, 1, 1, 2);
  s.plan.warnings = {mask};
  const auto plain = draw_html(s.input("causal"));
  const auto html = draw_html(s.input(mask));
  ASSERT_TRUE(plain.ok() && html.ok());
  for (const char* what : {"<script", "</script", "</title", "<!--"}) {
    EXPECT_EQ(count_of(*html, what), count_of(*plain, what)) << what;
  }
  for (const char* what : {"http:", "https:", "//cdn", " src=", "@import"}) {
    EXPECT_EQ(count_of(*plain, what), 0u) << what;
  }
  const nlohmann::json data = page_data(*html);
  const std::string shown = clean_text(mask, 1000, false);
  EXPECT_EQ(data["lists"][0]["mask"], shown);
  EXPECT_EQ(data["warnings"][0], shown);
}

TEST(PictureHtml, WarnsOfFactsInVain) {
  const std::vector<int32_t> ids(64, 0);
  Request request;
  request.masks = {*parse_mask("causal")};
  request.q_len = request.kv_len = 64;
  Facts facts;
  facts.doc_ids = ids;
  const auto batch = BorrowedBatch::make(request, facts);
  ASSERT_TRUE(batch) << batch.error().message;
  const auto html = draw_html({*batch, "causal"});
  ASSERT_TRUE(html) << html.error().message;
  EXPECT_EQ(page_data(*html)["warnings"].dump(),
            R"(["[plan] a fact should be named by a mask, found doc_ids )"
            R"(unused"])");
}

// ---- errors ----

std::string message(const Result<std::string>& r) {
  return r.ok() ? "no error" : r.error().message;
}

TEST(PictureErrors, NameTheRule) {
  std::mt19937 g(5);
  const Sample good = make_sample(g, 3, 4, 2, 3, 2);
  Input in = good.input();
  in.batch_row = 2;
  EXPECT_EQ(message(draw_text(in)), "[show] batch row is 0 to 1, found 2");
  in.batch_row = -1;
  EXPECT_EQ(message(draw_svg(in)), "[show] batch row is 0 to 1, found -1");
  in.batch_row = 0;
  in.head = 3;
  EXPECT_EQ(message(draw_html(in)), "[show] plan head is 0 to 2, found 3");
  in.head = 0;
  in.columns = 31;
  EXPECT_EQ(message(draw_text(in)),
            "[show] a text picture takes 32 columns, found 31");
  EXPECT_TRUE(draw_svg(in).ok());
}

TEST(PictureErrors, FactsMustBeAsTheyWerePlanned) {
  std::vector<int32_t> ids(16, 0);
  Request request;
  request.masks = {*parse_mask("documents")};
  request.q_len = request.kv_len = 16;
  request.tile = {8, 8};
  Facts facts;
  facts.doc_ids = ids;
  const auto batch = BorrowedBatch::make(request, facts);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  const Input in{*batch, "documents"};
  EXPECT_TRUE(draw_svg(in).ok());
  ids[9] = 1;
  const std::string due =
      "[show] facts must be as they were planned, found others (remake the "
      "batch when its facts change)";
  EXPECT_EQ(message(draw_text(in)), due);
  EXPECT_EQ(message(draw_svg(in)), due);
  EXPECT_EQ(message(draw_html(in)), due);
}

}  // namespace
}  // namespace tessera::picture
