// request/picks_file.cc: reads picks of queries, tiles and groups of blocks.
#include "request/picks_file.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/fail.h"
#include "base/files.h"
#include "base/integers.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "receipt/machine.h"
#include "request/given_picks.h"

namespace tessera::request {

void PicksFile::add_to(RouteInputs& inputs) const {
  if (picks) inputs.picks = picks->view();
  if (tile_picks) inputs.tile_picks = tile_picks->view();
  if (metas) inputs.metas = metas->view();
}

Result<PicksFile::Given> read_picks_tensor(const Tensor& tensor,
                                           std::string_view name,
                                           const Request& r, int64_t rows,
                                           std::string_view path) {
  const std::vector<int64_t>& shape = tensor.shape;
  if (shape.size() != 4 || shape[0] != r.batch || shape[1] < 1 ||
      shape[2] != rows || shape[3] < 1) {
    return invalid("picks",
                   "tensor {} must have shape [{}, heads, {}, k], found "
                   "[{}] for {}",
                   name, r.batch, rows, fmt::join(shape, ", "),
                   in_quotes(path));
  }
  auto values = int32_values(tensor, name);
  if (!values) return in_file(values.error(), path);
  return PicksFile::Given{std::move(*values), shape};
}

Result<PicksFile> read_picks_file(const std::string& path, const Request& r,
                                  int64_t query_tile) {
  if (path.starts_with(kTopkSource)) {
    return invalid("cli",
                   "--picks topk_idxs goes with a mask that names blocks(n), "
                   "found {}",
                   to_string(r.masks.front()));
  }
  auto bytes = read_file(path, receipt::available_memory());
  if (!bytes) return bytes.error();
  auto file = parse_safetensors(*bytes);
  if (!file) return in_file(file.error(), path);
  PicksFile out;
  const int64_t tiles = ceil_div(r.q_len, std::max<int64_t>(query_tile, 1));
  const std::tuple<std::string_view, int64_t, std::optional<PicksFile::Given>*>
      known[] = {{"picks", r.q_len, &out.picks},
                 {"tile_picks", tiles, &out.tile_picks},
                 {"metas", r.q_len, &out.metas}};
  for (const auto& [name, rows, to] : known) {
    const auto it = file->tensors.find(name);
    if (it == file->tensors.end()) continue;
    auto given = read_picks_tensor(it->second, name, r, rows, path);
    if (!given) return given.error();
    *to = std::move(*given);
  }
  if (!out.picks && !out.tile_picks && !out.metas) {
    return invalid("picks",
                   "a file must hold a tensor picks, tile_picks or metas, "
                   "found none in {}",
                   in_quotes(path));
  }
  return out;
}

}  // namespace tessera::request
