// request/picks_file.h: the picks of another router, from a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/safetensors.h"
#include "tessera/plan.h"
#include "tessera/result.h"
#include "tessera/route.h"

namespace tessera::request {

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
// Reads one tensor with `rows` rows of k picks; `name`, `path` are for errors.
Result<PicksFile::Given> read_picks_tensor(const Tensor& tensor,
                                           std::string_view name,
                                           const Request& request, int64_t rows,
                                           std::string_view path);
Result<PicksFile> read_picks_file(const std::string& path,
                                  const Request& request, int64_t query_tile);

}  // namespace tessera::request
