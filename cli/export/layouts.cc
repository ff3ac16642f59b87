// cli/export/layouts.cc: a plan's own layouts, and the table of all layouts.
#include "cli/export/layouts.h"

#include "base/fail.h"
#include "cli/export/kernel_layouts.h"
#include "tessera/batch.h"
#include "tessera/layouts.h"

namespace tessera::cli {
namespace {

Result<void> add_lists(const Batch& batch, const ExportFlags&,
                       NamedArrays& out) {
  const std::pair<const char*, const Worklist*> lists[] = {
      {"forward", &batch.plan().forward},
      {"transposed", &batch.plan().transposed}};
  for (const auto& [name, w] : lists) {
    std::vector<int32_t> column;
    std::vector<uint8_t> tile_class;
    for (const Entry& e : w->entries) {
      column.push_back(static_cast<int32_t>(e.column()));
      tile_class.push_back(static_cast<uint8_t>(e.tile_class()));
    }
    const std::string prefix = name;
    const std::vector<int32_t> start(w->row_start.begin(), w->row_start.end());
    out.add(prefix + ".row_start", Dtype::i32, {count(start)}, start);
    out.add(prefix + ".column", Dtype::i32, {count(column)}, column);
    out.add(prefix + ".class", Dtype::u8, {count(tile_class)}, tile_class);
  }
  return {};
}

Result<void> add_steps(const Batch& batch, const ExportFlags&,
                       NamedArrays& out) {
  for (const bool transposed : {false, true}) {
    auto steps = pack_steps(batch, transposed);
    if (!steps) return steps.error();
    const std::string prefix = transposed ? "transposed" : "forward";
    std::vector<int32_t> words;  // not all safetensors readers have U32
    for (const Step& step : steps->steps) {
      words.push_back(static_cast<int32_t>(step.word));
    }
    const std::vector<int32_t> range(steps->range.begin(), steps->range.end());
    out.add(prefix + ".steps", Dtype::i32, {count(words)}, words);
    out.add(prefix + ".range", Dtype::i32, {count(range)}, range);
  }
  return {};
}

Result<void> add_rectangle(const Batch& batch, const ExportFlags& flags,
                           NamedArrays& out) {
  const std::pair<const char*, const Worklist*> lists[] = {
      {"forward", &batch.plan().forward},
      {"transposed", &batch.plan().transposed}};
  for (const auto& [name, w] : lists) {
    auto r = make_rectangle(*w, bucket(grid_width(*w)));
    if (!r) return r.error();
    const std::string prefix = name;
    const NamedArrays::Shape shape = {batch.plan().batch, batch.plan().heads,
                                      r->rows, r->width};
    out.add(prefix + ".column", Dtype::i32, shape, r->column);
    out.add(prefix + ".class", Dtype::u8, shape, r->tile_class);
    // The same arrays with the names of Splash.
    out.add(prefix + ".data_next", Dtype::i32, shape, r->column);
    out.add(prefix + ".block_mask", Dtype::u8, shape, r->tile_class);
    out.add(prefix + ".grid_width", Dtype::i32, {1},
            std::vector{static_cast<int32_t>(r->width)});
    if (flags.no_mask_blocks) continue;
    auto masks =
        make_mask_blocks(batch, w == &batch.plan().transposed, r->width);
    if (!masks && masks.error().kind == ErrorKind::limit) {
      return over_limit("export",
                        "partial_mask_blocks must fit {} bytes, found more "
                        "(--no-mask-blocks leaves them out)",
                        kMaxLayoutBytes);
    }
    if (!masks) return masks.error();
    const int64_t area = masks->rows * masks->columns;
    out.add(prefix + ".mask_next", Dtype::i32, shape, masks->mask_next);
    out.add(prefix + ".partial_mask_blocks", Dtype::boolean,
            {count(masks->blocks) / area, masks->rows, masks->columns},
            masks->blocks);
  }
  return {};
}

Result<void> add_bitmaps(const Batch& batch, const ExportFlags& flags,
                         NamedArrays& out) {
  auto b = make_bitmaps(batch);
  if (!b) return b.error();
  const int64_t distinct =
      b->words_per_tile > 0 ? count(b->words) / b->words_per_tile : 0;
  out.add("words", Dtype::i64, {distinct, b->words_per_tile}, b->words);
  out.add("of_entry", Dtype::i32, {count(b->of_entry)}, b->of_entry);
  return add_lists(batch, flags, out);
}

constexpr ExportLayout kLayouts[] = {
    {"lists", add_lists},         {"steps", add_steps},
    {"rectangle", add_rectangle}, {"bitmaps", add_bitmaps},
    {"flex", add_flex},           {"splash", add_splash},
    {"tokamax", add_tokamax},     {"mosaic", add_mosaic},
    {"topk", add_topk},
};

}  // namespace

std::span<const ExportLayout> export_layouts() { return kLayouts; }

}  // namespace tessera::cli
