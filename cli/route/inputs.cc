// cli/route/inputs.cc: reads arrays from and writes picks to .safetensors
// files.
#include "cli/route/inputs.h"

#include <algorithm>
#include <span>

#include "base/bytes.h"
#include "base/fail.h"
#include "base/files.h"
#include "base/tensor_rows.h"

namespace tessera::cli {

Result<request::Array> read_array(const Safetensors& file,
                                  std::string_view name,
                                  request::Layout layout) {
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
  const bool bhsd = layout == request::Layout::bhsd;
  request::Array out(tensor->dtype, layout, s[0], bhsd ? s[1] : s[2],
                     bhsd ? s[2] : s[1], s[3]);
  out.fill(tensor->bytes);
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
