#include "picture/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "picture/labels.h"
#include "picture/svg_frame.h"

namespace tessera::picture {
namespace {

constexpr double kWidth = 760, kHeight = 690;
constexpr double kLeft = 28;
constexpr double kInside = kWidth - 2 * kLeft;
constexpr double kBars = 96;  // height
constexpr int64_t kMaxBins = 88;
constexpr std::string_view kFull = "#2667ba", kPartial = "#f0a332",
                           kEmpty = "#eef3fa";  // as in a plan's picture

class RowsPicture : SvgLines {
 public:
  RowsPicture(const data::RowStats& stats, std::string_view title)
      : s_(stats), title_(escape_markup(clean_text(title, 90, false))) {}

  std::string draw() {
    const std::string about = fmt::format(
        "{} rows of {} tokens", with_commas(s_.rows), with_commas(s_.tokens));
    out_ += svg_start(kWidth, kHeight, title_, about);
    out_ += svg_paper(kWidth, kHeight);
    put("<text class='m' x='{}' y='40'>{}</text>", kLeft, title_);
    put("<text class='s' x='{}' y='60'>{}</text>", kLeft, about);
    histogram(96, "How full a row is", s_.filled, "tokens");
    histogram(266, "What attention over a row costs", s_.cost, "tiles");
    histogram(436, "Documents of a row", s_.documents, "documents");
    classes(606);
    out_ += "</svg>\n";
    return std::move(out_);
  }

 private:
  // Draws counts of rows by value, in bins of one width; each bar's tooltip
  // says what it stands for.
  void histogram(double top, std::string_view name,
                 const std::map<int64_t, int64_t>& rows,
                 std::string_view unit) {
    put("<text class='k' x='{}' y='{}'>{}</text>", kLeft, top, name);
    if (rows.empty()) return;
    const int64_t low = rows.begin()->first, high = rows.rbegin()->first;
    const int64_t width = (high - low) / kMaxBins + 1;
    std::vector<int64_t> bins(static_cast<size_t>((high - low) / width) + 1);
    double sum = 0;
    for (const auto& [value, n] : rows) {
      bins[static_cast<size_t>((value - low) / width)] += n;
      sum += static_cast<double>(value) * static_cast<double>(n);
    }
    put("<text class='s' x='{}' y='{}' text-anchor='end'>{:.1f} {} on average, "
        "{} to {}</text>",
        kWidth - kLeft, top, sum / static_cast<double>(s_.rows), unit,
        with_commas(low), with_commas(high));
    const auto most =
        static_cast<double>(*std::max_element(bins.begin(), bins.end()));
    const double step =
        std::min(24.0, kInside / static_cast<double>(bins.size()));
    const double bottom = top + 14 + kBars;
    for (size_t b = 0; b < bins.size(); ++b) {
      if (bins[b] == 0) continue;
      const int64_t from = low + static_cast<int64_t>(b) * width;
      const int64_t to = std::min(high, from + width - 1);
      const double tall =
          std::max(1.0, kBars * static_cast<double>(bins[b]) / most);
      put("<rect x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}' "
          "fill='{}'><title>{} rows of {} {}</title></rect>",
          kLeft + step * static_cast<double>(b), bottom - tall,
          std::max(0.5, step - 1), tall, kFull, with_commas(bins[b]),
          from == to ? with_commas(from)
                     : with_commas(from) + " to " + with_commas(to),
          unit);
    }
    put("<rect x='{}' y='{}' width='{}' height='1' fill='#9ca3af'/>", kLeft,
        bottom, kInside);
    put("<text class='n' x='{}' y='{}'>{}</text>", kLeft, bottom + 16,
        with_commas(low));
    const double end = kLeft + step * static_cast<double>(bins.size());
    if (high > low) {
      put("<text class='n' x='{:.1f}' y='{}' text-anchor='end'>{}</text>",
          std::max(end, kLeft + 80), bottom + 16, with_commas(high));
    }
  }

  void classes(double top) {
    put("<text class='k' x='{}' y='{}'>Tiles</text>", kLeft, top);
    const int64_t empty = s_.tiles - s_.partial - s_.full;
    double x = kLeft;
    double label = kLeft;
    for (const auto& [name, n, color] :
         {std::tuple{"full", s_.full, kFull},
          std::tuple{"partial", s_.partial, kPartial},
          std::tuple{"empty", empty, kEmpty}}) {
      const double wide = s_.tiles == 0 ? 0
                                        : kInside * static_cast<double>(n) /
                                              static_cast<double>(s_.tiles);
      put("<rect x='{:.1f}' y='{}' width='{:.1f}' height='22' fill='{}'>"
          "<title>{} {} tiles</title></rect>",
          x, top + 14, wide, color, with_commas(n), name);
      x += wide;
      put("<rect x='{}' y='{}' width='10' height='10' fill='{}' "
          "stroke='#9ca3af'/><text x='{}' y='{}'>{} {} ({})</text>",
          label, top + 49, color, label + 16, top + 58, with_commas(n), name,
          percent(n, std::max<int64_t>(1, s_.tiles)));
      label += 220;
    }
  }

  const data::RowStats& s_;
  std::string title_;
};

}  // namespace

std::string draw_rows(const data::RowStats& stats, std::string_view title) {
  return RowsPicture(stats, title).draw();
}

}  // namespace tessera::picture
