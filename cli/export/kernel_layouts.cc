// cli/export/kernel_layouts.cc: one function for each kernel's arrays.
#include "cli/export/kernel_layouts.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/compile/kernel_flags.h"
#include "request/numbers.h"
#include "tessera/layouts.h"
#include "tessera/mosaic.h"

namespace tessera::cli {

namespace {

// The number of query heads; 0: the plan heads.
Result<int64_t> heads_of(const ExportFlags& flags) {
  return request::parse_int(flags.heads.value_or("0"), "--heads", 0, kMaxTiles);
}

Result<int64_t> batch_row_of(const ExportFlags& flags, const Batch& batch) {
  return request::parse_int(flags.batch_row.value_or("0"), "--batch-row", 0,
                            batch.plan().batch - 1);
}

void add_splash_array(const std::string& name, const SplashArray& a,
                      NamedArrays& out) {
  constexpr Dtype kTypes[] = {Dtype::boolean, Dtype::i8, Dtype::i16,
                              Dtype::i32};
  out.add_bytes(name, kTypes[static_cast<size_t>(a.type)], a.shape,
                std::string(bytes_of(std::span<const uint8_t>(a.bytes))));
}

}  // namespace

Result<void> add_flex(const Batch& batch, const ExportFlags& flags,
                      NamedArrays& out) {
  auto heads = heads_of(flags);
  if (!heads) return heads.error();
  auto mask = make_flex(batch, *heads);
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
  auto batch_row = batch_row_of(flags, batch);
  if (!batch_row) return batch_row.error();
  auto heads = heads_of(flags);
  if (!heads) return heads.error();
  auto shards = request::parse_int(flags.q_shards.value_or("1"), "--q-shards",
                                   1, kMaxTokens);
  if (!shards) return shards.error();
  o.heads = *heads;
  o.q_shards = *shards;
  auto info = make_splash(batch, *batch_row, o);
  if (!info) return info.error();
  add_splash_array("data_next", info->data_next, out);
  add_splash_array("block_mask", info->block_mask, out);
  const std::pair<const char*, const std::optional<SplashArray>*> others[] = {
      {"mask_next", &info->mask_next},
      {"partial_mask_blocks", &info->partial_mask_blocks},
      {"q_sequence", &info->q_sequence}};
  for (const auto& [name, array] : others) {
    if (*array) add_splash_array(name, **array, out);
  }
  return {};
}

Result<void> add_tokamax(const Batch& batch, const ExportFlags& flags,
                         NamedArrays& out) {
  auto batch_row = batch_row_of(flags, batch);
  if (!batch_row) return batch_row.error();
  auto heads = heads_of(flags);
  if (!heads) return heads.error();
  auto blocks = request::parse_int(flags.max_blocks.value_or("0"),
                                   "--max-blocks", 0, kMaxTiles);
  if (!blocks) return blocks.error();
  auto info = make_tokamax_run(batch, *batch_row, {flags.dkv, *heads, *blocks});
  if (!info) return info.error();
  const std::pair<const char*, const std::vector<int32_t>*> lists[] = {
      {"mask_next", &info->mask_next},
      {"active_rows", &info->active_rows},
      {"active_cols", &info->active_cols},
      {"block_mask", &info->block_mask}};
  for (const auto& [name, list] : lists) {
    out.add(name, Dtype::i32, {count(*list)}, *list);
  }
  out.add("num_active_blocks", Dtype::i32, {1},
          std::vector{static_cast<int32_t>(info->num_active_blocks)});
  add_splash_array("partial_mask_blocks", info->partial_mask_blocks, out);
  return {};
}

Result<AttentionCall> mosaic_call(const ExportFlags& flags) {
  AttentionCall out;
  out.dtype = tessera::Dtype::bf16;
  out.backward = flags.backward;
  out.sink_telemetry = flags.sink_telemetry;
  const std::string dim = flags.head_dim.value_or("128");
  auto keys = request::parse_int(dim, "--head-dim", 1, kMaxHeadDim);
  if (!keys) return keys.error();
  auto values = request::parse_int(flags.v_head_dim.value_or(dim),
                                   "--v-head-dim", 1, kMaxHeadDim);
  if (!values) return values.error();
  auto heads =
      request::parse_int(flags.heads.value_or("8"), "--heads", 1, kMaxHeads);
  if (!heads) return heads.error();
  out.shape.heads = out.shape.kv_heads = *heads;
  out.shape.head_dim = *keys;
  out.shape.v_head_dim = *values;
  return out;
}

std::string mosaic_target(const ExportFlags& flags) {
  return flags.request.target.value_or("v6e");
}

Result<void> read_mosaic_options(const ExportFlags& flags,
                                 MosaicOptions& options) {
  if (auto e = read_kernel_sizes(flags, options); !e) return e;
  options.lowering_reason = flags.lowering_reason;
  auto numbers = read_numbers(flags.numbers);
  if (!numbers) return numbers.error();
  options.numbers = *numbers;
  return {};
}

// The arrays of the TPU kernel.
Result<void> add_mosaic(const Batch& batch, const ExportFlags& flags,
                        NamedArrays& out) {
  MosaicOptions options = flags.backward ? kMosaicBackward : MosaicOptions{};
  if (auto e = read_mosaic_options(flags, options); !e) return e;
  auto call = mosaic_call(flags);
  if (!call) return call.error();
  // The number of heads only affects the size of the query chunks.
  if (!flags.heads) {
    const int64_t of_list = flags.backward ? 8 : 1;
    call->shape.heads = call->shape.kv_heads = of_list * batch.plan().heads;
  }
  auto kernel = make_mosaic_kernel(batch.request(), batch.facts(), *call,
                                   mosaic_target(flags), options);
  if (!kernel) return kernel.error();
  auto arrays = make_mosaic_arrays(batch, *kernel);
  if (!arrays) return arrays.error();
  for (const MosaicArray& array : named_arrays(*kernel, std::move(*arrays))) {
    out.add(std::string(array.name), Dtype::i32, array.shape, array.values);
  }
  return {};
}

Result<void> add_topk(const Batch& batch, const ExportFlags&,
                      NamedArrays& out) {
  auto topk = make_topk(batch);
  if (!topk) return topk.error();
  out.add("topk_idxs", Dtype::i32, topk->shape, topk->values);
  return {};
}

}  // namespace tessera::cli
