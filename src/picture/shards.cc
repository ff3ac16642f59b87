#include "picture/shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "picture/labels.h"
#include "picture/svg_frame.h"

namespace tessera::picture {
namespace {

constexpr double kWidth = 760;
constexpr double kLeft = 28;
constexpr double kInside = kWidth - 2 * kLeft;
constexpr double kStrip = 22, kStripStep = 30;  // height, and pitch
constexpr int64_t kMaxRows = 8;                 // batch rows drawn
constexpr double kBars = 80;
constexpr double kMatrix = 320;
constexpr std::string_view kWork = "#2667ba", kTokens = "#f0a332";

// Colours of neighbours differ much, so that a cut is visible.
std::string color_of(int64_t seq) {
  return fmt::format("hsl({},62%,{}%)", seq * 137 % 360,
                     seq % 2 == 0 ? 52 : 68);
}

class ShardsPicture : SvgLines {
 public:
  ShardsPicture(const Shards& shards, const Plan& plan, std::string_view title)
      : s_(shards),
        plan_(plan),
        title_(escape_markup(clean_text(title, 90, false))),
        seq_(shards.mesh.size("seq")),
        rows_(std::min(plan.batch, kMaxRows)) {
    find_tiles();
  }

  std::string draw() {
    const double held = 96;
    const double strips = kStripStep * static_cast<double>(rows_) + 34;
    const bool moved = holder_ != worker_;
    const double worked = held + (moved ? strips : 0);
    const double bars = worked + strips;
    const double matrix = bars + 2 * (kBars + 54);
    const double height = matrix + (seq_ > 1 ? kMatrix + 54 : 0);
    const ShardReport& r = s_.report;
    const std::string about = fmt::format(
        "{} shards: work {:.3f} and tokens {:.3f} times the mean at most",
        s_.shards.size(), r.work_max_over_mean, r.tokens_max_over_mean);
    out_ += svg_start(kWidth, height, title_, about);
    out_ += svg_paper(kWidth, height);
    put("<text class='m' x='{}' y='40'>{}</text>", kLeft, title_);
    put("<text class='s' x='{}' y='60'>{}; {}</text>", kLeft,
        escape_markup(to_string(s_.mesh)), about);
    band(held, "Who holds each query tile", "holds", holder_);
    if (moved) band(worked, "Who computes it", "computes", worker_);
    bar_chart(bars, "Work of each shard", "steps", kWork,
              [](const Shard& s) { return s.work; });
    bar_chart(bars + kBars + 54, "Query tiles that it holds", "tiles", kTokens,
              [](const Shard& s) { return s.own_rows; });
    if (seq_ > 1) traffic(matrix);
    out_ += "</svg>\n";
    return std::move(out_);
  }

 private:
  // Fills holder_ and worker_ by batch row and tile. Heads are distributed
  // alike, so the first one is enough.
  void find_tiles() {
    const auto n = static_cast<size_t>(rows_ * plan_.forward.rows);
    holder_.assign(n, -1);
    worker_.assign(n, -1);
    for (const Shard& s : s_.shards) {
      if (s.head != 0) continue;
      for (size_t i = 0; i < s.rows.size(); ++i) {
        const TileAt& at = s.rows[i];
        if (at.batch_row < 0 || at.batch_row >= rows_) continue;
        const auto tile =
            static_cast<size_t>(at.batch_row * plan_.forward.rows + at.tile);
        if (static_cast<int64_t>(i) < s.own_rows) holder_[tile] = s.seq;
        if (s.computes[i] != 0) worker_[tile] = s.seq;
      }
    }
  }

  // Draws a strip per batch row, its runs of tiles in their shards' colours.
  void band(double top, std::string_view name, std::string_view does,
            const std::vector<int64_t>& of) {
    put("<text class='k' x='{}' y='{}'>{}</text>", kLeft, top, name);
    if (rows_ < plan_.batch) {
      put("<text class='s' x='{}' y='{}' text-anchor='end'>the first {} of {} "
          "batch rows</text>",
          kWidth - kLeft, top, rows_, with_commas(plan_.batch));
    }
    const int64_t tiles = plan_.forward.rows;
    const double wide = kInside / static_cast<double>(tiles);
    for (int64_t row = 0; row < rows_; ++row) {
      const double y = top + 12 + kStripStep * static_cast<double>(row);
      const auto shard_of = [&](int64_t tile) {
        return of[static_cast<size_t>(row * tiles + tile)];
      };
      for (int64_t begin = 0, end = 0; begin < tiles; begin = end) {
        const int64_t shard = shard_of(begin);
        while (end < tiles && shard_of(end) == shard) ++end;
        if (shard < 0) continue;
        put("<rect x='{:.2f}' y='{}' width='{:.2f}' height='{}' fill='{}'>"
            "<title>seq {} {} tiles {} to {} of batch row {}</title></rect>",
            kLeft + wide * static_cast<double>(begin), y,
            wide * static_cast<double>(end - begin), kStrip, color_of(shard),
            shard, does, with_commas(begin), with_commas(end - 1), row);
      }
    }
  }

  template <class F>
  void bar_chart(double top, std::string_view name, std::string_view unit,
                 std::string_view color, F value_of) {
    put("<text class='k' x='{}' y='{}'>{}</text>", kLeft, top, name);
    double sum = 0;
    int64_t most = 1;
    for (const Shard& s : s_.shards) {
      sum += static_cast<double>(value_of(s));
      most = std::max(most, value_of(s));
    }
    const double mean = sum / static_cast<double>(s_.shards.size());
    put("<text class='s' x='{}' y='{}' text-anchor='end'>{:.1f} {} on average, "
        "{} at most</text>",
        kWidth - kLeft, top, mean, unit, with_commas(most));
    const double step =
        std::min(kInside / 8, kInside / static_cast<double>(s_.shards.size()));
    const double bottom = top + 14 + kBars;
    for (size_t i = 0; i < s_.shards.size(); ++i) {
      const Shard& s = s_.shards[i];
      const double tall =
          kBars * static_cast<double>(value_of(s)) / static_cast<double>(most);
      put("<rect x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}' "
          "fill='{}'><title>{} {} of data {}, head {}, seq {}</title></rect>",
          kLeft + step * static_cast<double>(i), bottom - tall,
          std::max(0.5, step - 1), tall, color, with_commas(value_of(s)), unit,
          s.data, s.head, s.seq);
    }
    const double line = bottom - kBars * mean / static_cast<double>(most);
    put("<rect x='{}' y='{:.1f}' width='{}' height='1' fill='#111827'>"
        "<title>the mean</title></rect>",
        kLeft, line, step * static_cast<double>(s_.shards.size()));
  }

  // Shaded by the square root of the count, so that few tiles are visible
  // beside many.
  void traffic(double top) {
    const std::vector<int64_t>& tiles = s_.report.kv_tiles;
    const Moved& m = s_.report.forward;
    const auto beside = [&](int64_t bytes) {
      return percent(bytes, std::max<int64_t>(1, m.all_gather));
    };
    put("<text class='k' x='{}' y='{}'>K/V tiles that travel</text>", kLeft,
        top);
    put("<text class='s' x='{}' y='{}' text-anchor='end'>{} needed and {} sent "
        "of an all-gather's bytes</text>",
        kWidth - kLeft, top, beside(m.needed), beside(m.sent));
    const auto most = static_cast<double>(
        std::max<int64_t>(1, *std::max_element(tiles.begin(), tiles.end())));
    const double cell = kMatrix / static_cast<double>(seq_);
    const double left = kLeft + 60;
    put("<text class='n' x='{}' y='{}'>from</text>"
        "<text class='n' x='{}' y='{}'>to</text>",
        kLeft, top + 34, left + kMatrix + 8, top + 22);
    for (int64_t shard = 0; shard < seq_; ++shard) {
      const double at = cell * static_cast<double>(shard);
      for (const auto& [x, y, wide, high] :
           {std::tuple{left - 12, top + 24 + at, 8.0, cell * 0.94},
            std::tuple{left + at, top + 12, cell * 0.94, 8.0}}) {
        put("<rect x='{:.2f}' y='{:.2f}' width='{:.2f}' height='{:.2f}' "
            "fill='{}'><title>seq {}</title></rect>",
            x, y, wide, high, color_of(shard), shard);
      }
    }
    for (int64_t from = 0; from < seq_; ++from) {
      for (int64_t to = 0; to < seq_; ++to) {
        const int64_t n = tiles[static_cast<size_t>(from * seq_ + to)];
        put("<rect x='{:.2f}' y='{:.2f}' width='{:.2f}' height='{:.2f}' "
            "fill='{}' fill-opacity='{:.3f}'><title>{} tiles from seq {} to "
            "seq {}</title></rect>",
            left + cell * static_cast<double>(to),
            top + 24 + cell * static_cast<double>(from), cell * 0.94,
            cell * 0.94, n > 0 ? kWork : "#e5e7eb",
            n > 0 ? 0.15 + 0.85 * std::sqrt(static_cast<double>(n) / most)
                  : 1.0,
            with_commas(n), from, to);
      }
    }
  }

  const Shards& s_;
  const Plan& plan_;
  std::string title_;
  int64_t seq_, rows_;
  std::vector<int64_t> holder_, worker_;  // "seq" index; -1: none
};

}  // namespace

std::string draw_shards(const Batch& batch, const Shards& shards,
                        std::string_view title) {
  return ShardsPicture(shards, batch.plan(), title).draw();
}

}  // namespace tessera::picture
