// picture/losses.cc: a line over the steps, scaled from the least loss to the
// largest.
#include "picture/losses.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "picture/labels.h"
#include "picture/svg_frame.h"

namespace tessera::picture {
namespace {

constexpr double kWidth = 760, kHeight = 360;
constexpr double kLeft = 72, kRight = 28, kTop = 84, kBottom = 48;
constexpr size_t kMaxPoints = 2000;  // drawn: means of equally many losses

std::vector<double> thinned(std::span<const double> losses) {
  const size_t each = (losses.size() + kMaxPoints - 1) / kMaxPoints;
  std::vector<double> out;
  for (size_t i = 0; i < losses.size(); i += each) {
    const size_t n = std::min(each, losses.size() - i);
    double sum = 0;
    for (size_t j = 0; j < n; ++j) sum += losses[i + j];
    out.push_back(sum / static_cast<double>(n));
  }
  return out;
}

}  // namespace

std::string draw_losses(std::span<const double> losses, int64_t first,
                        std::string_view title) {
  const std::vector<double> points = thinned(losses);
  const auto [least, most] = std::minmax_element(points.begin(), points.end());
  const double low = *least, high = *most;
  const double range = high > low ? high - low : 1;
  const double wide = kWidth - kLeft - kRight, tall = kHeight - kTop - kBottom;
  const std::string name = escape_markup(clean_text(title, 90, false));
  const int64_t last = first + static_cast<int64_t>(losses.size()) - 1;
  std::string out =
      svg_start(kWidth, kHeight, name,
                fmt::format("loss {:.4f} at step {}, {:.4f} at step {}",
                            losses.front(), first, losses.back(), last));
  out += svg_paper(kWidth, kHeight);
  const auto to = std::back_inserter(out);
  fmt::format_to(to, "<text class='m' x='28' y='40'>{}</text>\n", name);
  fmt::format_to(to,
                 "<text class='s' x='28' y='60'>loss a token {:.4f} at step "
                 "{}, {:.4f} at step {}</text>\n",
                 losses.front(), first, losses.back(), last);
  for (const double part : {0.0, 0.5, 1.0}) {
    const double y = kTop + tall * (1 - part);
    fmt::format_to(to,
                   "<line x1='{}' y1='{:.1f}' x2='{}' y2='{:.1f}' "
                   "stroke='#ddd'/><text class='s' x='28' y='{:.1f}'>{:.3f}"
                   "</text>\n",
                   kLeft, y, kWidth - kRight, y, y + 4, low + part * range);
  }
  out += "<polyline fill='none' stroke='#2667ba' stroke-width='1.5' points='";
  const double steps = std::max(1.0, static_cast<double>(points.size()) - 1);
  for (size_t i = 0; i < points.size(); ++i) {
    fmt::format_to(to, "{:.1f},{:.1f} ",
                   kLeft + wide * static_cast<double>(i) / steps,
                   kTop + tall * (1 - (points[i] - low) / range));
  }
  out += "'/>\n";
  fmt::format_to(to,
                 "<text class='s' x='{}' y='{}'>step {}</text><text class='s' "
                 "x='{}' y='{}' text-anchor='end'>{}</text>\n</svg>\n",
                 kLeft, kHeight - 20, first, kWidth - kRight, kHeight - 20,
                 last);
  return out;
}

}  // namespace tessera::picture
