// cli/route/inputs.h: what the router reads: q and k, or the picks of another
// router.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/safetensors.h"
#include "cli/data/attention_data.h"
#include "tessera/route.h"

namespace tessera::cli {

// Tensor `name`, [batch, heads, tokens, dim] as the layout orders it, copied:
// bytes of a file are aligned to nothing.
Result<Array> read_array(const Safetensors& file, std::string_view name,
                         Layout layout);

// I32 tensors picks [batch, heads, q_len, k], tile_picks [batch, heads, tiles,
// k] or metas [batch, heads, q_len, k].
struct PicksFile {
  struct Given {
    std::vector<int32_t> blocks;
    std::vector<int64_t> shape;

    Picks view() const { return {blocks, shape[1], shape[3]}; }
  };
  std::optional<Given> picks, tile_picks, metas;

  void add_to(RouteInputs& inputs) const;
};
Result<PicksFile> read_picks_file(const std::string& path,
                                  const Request& request, int64_t query_tile);

// picks, and slots, union_start and union_blocks where there are unions, and
// run_picks where attention runs on others.
Result<void> write_picks(const std::string& path, const Request& request,
                         const RouteResult& result);

}  // namespace tessera::cli
