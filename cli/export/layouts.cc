// cli/export/layouts.cc: one function for each layout.
#include "cli/export/layouts.h"

#include "base/fail.h"
#include "cli/numbers.h"
#include "tessera/contract.h"
#include "tessera/layouts.h"
#include "tessera/mosaic.h"

namespace tessera::cli {
namespace {

int64_t count(const auto& values) {
  return static_cast<int64_t>(values.size());
}

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
    auto steps = pack_steps(batch.plan(), transposed);
    if (!steps) return steps.error();
    const std::string prefix = transposed ? "transposed" : "forward";
    std::vector<int32_t> words;  // safetensors readers lack unsigned 32 bits
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
    // The same by the names that Splash has for them.
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

Result<void> add_flex(const Batch& batch, const ExportFlags& flags,
                      NamedArrays& out) {
  auto heads = parse_int(flags.heads.value_or("0"), "--heads", 0, kMaxTiles);
  if (!heads) return heads.error();
  auto mask = make_flex(batch.plan(), *heads);
  if (!mask) return mask.error();
  auto add = [&](const std::string& prefix, const std::string& of,
                 const FlexLists& lists, int64_t rows, int64_t columns) {
    out.add(prefix + of + "_num_blocks", Dtype::i32,
            {mask->batch, mask->heads, rows}, lists.num_blocks);
    out.add(prefix + of + "_indices", Dtype::i32,
            {mask->batch, mask->heads, rows, columns}, lists.indices);
  };
  add("", "kv", mask->kv, mask->rows, mask->columns);
  add("full_", "kv", mask->full_kv, mask->rows, mask->columns);
  add("", "q", mask->q, mask->columns, mask->rows);
  add("full_", "q", mask->full_q, mask->columns, mask->rows);
  return {};
}

Result<void> add_splash(const Batch& batch, const ExportFlags& flags,
                        NamedArrays& out) {
  SplashOptions o;
  o.dkv = flags.dkv;
  o.shrink = !flags.no_shrink;
  o.computable = flags.computable;
  auto batch_row = parse_int(flags.batch_row.value_or("0"), "--batch-row", 0,
                             batch.plan().batch - 1);
  if (!batch_row) return batch_row.error();
  auto heads = parse_int(flags.heads.value_or("0"), "--heads", 0, kMaxTiles);
  if (!heads) return heads.error();
  auto shards =
      parse_int(flags.q_shards.value_or("1"), "--q-shards", 1, kMaxTokens);
  if (!shards) return shards.error();
  o.heads = *heads;
  o.q_shards = *shards;
  auto info = make_splash(batch, *batch_row, o);
  if (!info) return info.error();
  auto add = [&](const std::string& name, const SplashArray& a) {
    constexpr Dtype kTypes[] = {Dtype::boolean, Dtype::i8, Dtype::i16,
                                Dtype::i32};
    out.add_bytes(name, kTypes[static_cast<size_t>(a.type)], a.shape,
                  std::string(bytes_of(std::span<const uint8_t>(a.bytes))));
  };
  add("data_next", info->data_next);
  add("block_mask", info->block_mask);
  if (info->mask_next) add("mask_next", *info->mask_next);
  if (info->partial_mask_blocks) {
    add("partial_mask_blocks", *info->partial_mask_blocks);
  }
  if (info->q_sequence) add("q_sequence", *info->q_sequence);
  return {};
}

// The arrays of the TPU kernel, and nothing of its heads: any will do.
Result<void> add_mosaic(const Batch& batch, const ExportFlags& flags,
                        NamedArrays& out) {
  MosaicOptions options = flags.backward ? kMosaicBackward : MosaicOptions{};
  auto tiles = parse_int(*flags.tiles_per_pass, "--tiles-per-pass", 1,
                         kMosaicMaxTilesPerPass);
  if (!tiles) return tiles.error();
  options.tiles_per_pass = *tiles;
  AttentionCall call;
  call.shape.head_dim = call.shape.v_head_dim = 128;
  call.shape.heads = call.shape.kv_heads = batch.plan().heads;
  call.dtype = tessera::Dtype::bf16;
  call.backward = flags.backward;
  auto kernel =
      make_mosaic_kernel(batch.request(), batch.facts(), call, "v6e", options);
  if (!kernel) return kernel.error();
  auto arrays = make_mosaic_arrays(batch, *kernel);
  if (!arrays) return arrays.error();
  constexpr int64_t kLanes = 128;
  out.add("steps", Dtype::i32, {count(arrays->steps)}, arrays->steps);
  out.add("range", Dtype::i32, {count(arrays->range)}, arrays->range);
  out.add("bounds", Dtype::i32, {count(arrays->bounds)}, arrays->bounds);
  out.add("q_ids", Dtype::i32, {kernel->batch, kernel->q_len / kLanes, kLanes},
          arrays->q_ids);
  out.add("kv_ids", Dtype::i32,
          {kernel->batch, kernel->kv_len / kLanes, kLanes}, arrays->kv_ids);
  if (kernel->bitmaps == 0) return {};
  const int64_t rows = count(arrays->bits) / (kernel->bitmaps * kernel->tile.q);
  out.add("bits_of", Dtype::i32, {count(arrays->bits_of)}, arrays->bits_of);
  out.add("bits", Dtype::i32, {kernel->bitmaps, rows, kernel->tile.q},
          arrays->bits);
  return {};
}

Result<void> add_topk(const Batch& batch, const ExportFlags&,
                      NamedArrays& out) {
  auto topk = make_topk(batch);
  if (!topk) return topk.error();
  out.add("topk_idxs", Dtype::i32, topk->shape, topk->values);
  return {};
}

constexpr ExportLayout kLayouts[] = {
    {"lists", add_lists},         {"steps", add_steps},
    {"rectangle", add_rectangle}, {"bitmaps", add_bitmaps},
    {"flex", add_flex},           {"splash", add_splash},
    {"mosaic", add_mosaic},       {"topk", add_topk},
};

}  // namespace

std::span<const ExportLayout> export_layouts() { return kLayouts; }

}  // namespace tessera::cli
