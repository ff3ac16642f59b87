// cli/export/flags.cc: flags of `tessera export`.
#include "cli/export/flags.h"

namespace tessera::cli {

void add_export_flags(Command& command, ExportFlags& f) {
  add_flags(
      command,
      {
          {"--layout", &f.layout, "NAME",
           "lists, steps (packed), rectangle, bitmaps (of the partial tiles), "
           "flex (PyTorch BlockMask), splash (JAX MaskInfo), tokamax (its "
           "MaskInfo), topk (picks as topk_idxs) or mosaic (the TPU kernel's, "
           "at its tile where --tile is open)"},
          {"-o,--out", &f.out, "FILE", "File to write"},
      });
  add_request_flags(command, f.request);
  add_flags(
      command,
      {
          {"--heads", &f.heads, "N",
           "flex, splash: query heads, a multiple of the plan's [the plan's]; "
           "mosaic: as given to compile [8]"},
          {"--batch-row", &f.batch_row, "B", "splash, tokamax: which row [0]"},
          {"--max-blocks", &f.max_blocks, "N",
           "tokamax: distinct partial tiles that there is room for [a bucket]"},
          {"--q-shards", &f.q_shards, "N", "splash: query shards [1]"},
          {"--tiles-per-pass", &f.tiles_per_pass, "N",
           "mosaic: tiles of the kernel's pass [as compile has it]"},
          {"--page-steps", &f.page_steps, "N", "mosaic: as given to compile"},
          {"--fetch-ahead", &f.fetch_ahead, "N",
           "mosaic: as given to compile [as compile has it]"},
          {"--query-chunk", &f.query_chunk, "N",
           "mosaic: query chunk of the backward kernel, as compile says it "
           "[that of 8 heads a list]"},
          {"--keys-per-query", &f.keys_per_query, "N",
           "mosaic: as given to compile"},
          {"--lowering-reason", &f.lowering_reason, "TEXT",
           "mosaic: as given to compile, for a tile or a block below the "
           "granule"},
          {"--numbers", &f.numbers, "WHICH", "mosaic: as given to compile"},
          {"--head-dim", &f.head_dim, "N",
           "mosaic: dimension of queries and keys, as given to compile [128]"},
          {"--v-head-dim", &f.v_head_dim, "N",
           "mosaic: dimension of values [head-dim]"},
          {"--backward", &f.backward, "",
           "mosaic: lists of the gradients' kernel"},
          {"--sink-telemetry", &f.sink_telemetry, "",
           "mosaic: lists of the kernel of sink telemetry"},
          {"--dkv", &f.dkv, "", "splash, tokamax: the arrays of dK and dV"},
          {"--no-shrink", &f.no_shrink, "", "splash: keep the whole grid"},
          {"--computable", &f.computable, "",
           "splash: the kernel computes the mask, no partial blocks"},
          {"--no-mask-blocks", &f.no_mask_blocks, "",
           "rectangle: leave out mask_next and partial_mask_blocks"},
          {"--json", &f.json, "", "One JSON object on stdout"},
      });
}

}  // namespace tessera::cli
