// cli/route/inputs.cc: arrays and picks from and to .safetensors files.
#include "cli/route/inputs.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/fail.h"
#include "base/files.h"
#include "base/integers.h"
#include "base/tensor_rows.h"
#include "base/text.h"
#include "cli/request/given_picks.h"
#include "receipt/machine.h"

namespace tessera::cli {

Result<Array> read_array(const Safetensors& file, std::string_view name,
                         Layout layout) {
  auto tensor = file.find(name);
  if (!tensor) return tensor.error();
  const std::vector<int64_t>& s = tensor->shape;
  if (s.size() != 4 || std::find(s.begin(), s.end(), 0) != s.end()) {
    return invalid("inputs",
                   "{} must have four dimensions, none of them 0, found [{}]",
                   name, fmt::join(s, ", "));
  }
  if (!is_float_dtype(tensor->dtype)) {
    return invalid("inputs", "{} must be F32, BF16 or F16, found {}", name,
                   to_string(tensor->dtype));
  }
  const bool bhsd = layout == Layout::bhsd;
  Array out(tensor->dtype, layout, s[0], bhsd ? s[1] : s[2], bhsd ? s[2] : s[1],
            s[3]);
  out.fill(tensor->bytes);
  return out;
}

void PicksFile::add_to(RouteInputs& inputs) const {
  if (picks) inputs.picks = picks->view();
  if (tile_picks) inputs.tile_picks = tile_picks->view();
  if (metas) inputs.metas = metas->view();
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
  if (!file) return file.error();
  PicksFile out;
  const int64_t tiles = ceil_div(r.q_len, std::max<int64_t>(query_tile, 1));
  const std::tuple<std::string_view, int64_t, std::optional<PicksFile::Given>*>
      known[] = {{"picks", r.q_len, &out.picks},
                 {"tile_picks", tiles, &out.tile_picks},
                 {"metas", r.q_len, &out.metas}};
  for (const auto& [name, rows, to] : known) {
    const auto it = file->tensors.find(name);
    if (it == file->tensors.end()) continue;
    const std::vector<int64_t>& shape = it->second.shape;
    if (shape.size() != 4 || shape[0] != r.batch || shape[2] != rows) {
      return invalid("picks",
                     "tensor {} must have shape [{}, heads, {}, k], found "
                     "[{}] for {}",
                     name, r.batch, rows, fmt::join(shape, ", "),
                     in_quotes(path));
    }
    auto values = int32_values(it->second, name);
    if (!values) return values.error();
    to->emplace(PicksFile::Given{std::move(*values), shape});
  }
  if (!out.picks && !out.tile_picks && !out.metas) {
    return invalid("picks",
                   "a file must hold a tensor picks, tile_picks or metas, "
                   "found none in {}",
                   in_quotes(path));
  }
  return out;
}

Result<void> write_picks(const std::string& path, const Request& request,
                         const RouteResult& r) {
  Safetensors file;
  const auto add = [&](const char* name, const std::vector<int32_t>& values,
                       int64_t k) {
    file.tensors[name] = {Dtype::i32,
                          {request.batch, r.heads, request.q_len, k},
                          bytes_of(std::span<const int32_t>(values))};
  };
  add("picks", r.picks, r.k);
  if (!r.unions.start.empty()) {
    add("slots", r.unions.slots, r.k);
    file.tensors["union_start"] = {
        Dtype::i64,
        {static_cast<int64_t>(r.unions.start.size())},
        bytes_of(std::span<const int64_t>(r.unions.start))};
    file.tensors["union_blocks"] = {
        Dtype::i32,
        {static_cast<int64_t>(r.unions.blocks.size())},
        bytes_of(std::span<const int32_t>(r.unions.blocks))};
  }
  if (!r.run_picks.empty()) add("run_picks", r.run_picks, r.run_k);
  file.metadata["meaning"] = to_string(r.settings.meaning);
  auto bytes = write_safetensors(file);
  if (!bytes) return bytes.error();
  return write_file(path, *bytes);
}

}  // namespace tessera::cli
