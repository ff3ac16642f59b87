// data/row_file.cc: packed rows in a .safetensors file, a tensor a column.
#include "data/row_file.h"

#include <algorithm>
#include <charconv>

#include "base/bytes.h"
#include "base/fail.h"
#include "base/files.h"
#include "base/shape.h"
#include "base/text.h"
#include "data/import_rows.h"

namespace tessera::data {
namespace {

constexpr std::string_view kPadId = "pad_id";
constexpr std::string_view kMaxChunks = "max_chunks";
constexpr std::string_view kMaxEdges = "max_edges";
constexpr int64_t kMaxFileBytes = int64_t{1} << 36;

// A tensor that may be absent; an error where it is not as the schema says.
Result<const Tensor*> find(const Safetensors& file, const RowColumnSpec& spec,
                           std::string_view name) {
  const auto at = file.tensors.find(spec.name);
  if (at == file.tensors.end()) {
    if (!spec.required) return nullptr;
    return invalid("data", "rows must have the column {}, found none for {}",
                   spec.name, in_quotes(name));
  }
  if (at->second.dtype != spec.dtype) {
    return invalid("data", "column {} must be {}, found {} for {}", spec.name,
                   to_string(spec.dtype), to_string(at->second.dtype),
                   in_quotes(name));
  }
  return &at->second;
}

// A number of the file's metadata.
Result<int64_t> number_of(const Safetensors& file, std::string_view key,
                          int64_t otherwise, std::string_view name) {
  const auto at = file.metadata.find(key);
  if (at == file.metadata.end()) return otherwise;
  int64_t n = 0;
  const std::string& text = at->second;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() ||
      n < INT32_MIN || n > INT32_MAX) {
    return invalid("data", "{} must be an integer, found {} for {}", key,
                   in_quotes(text), in_quotes(name));
  }
  return n;
}

// Tokens are those of input_ids; the file may say how many chunks and edges.
Result<RowShape> shape_of(const Safetensors& file, std::string_view name) {
  auto ids = find(file, spec_of(RowColumn::input_ids), name);
  if (!ids) return ids.error();
  if ((*ids)->shape.size() != 2) {
    return invalid("data", "input_ids must be [rows, tokens], found {} for {}",
                   shape_text((*ids)->shape), in_quotes(name));
  }
  const RowShape usual = RowShape::of((*ids)->shape[1]);
  auto chunks = number_of(file, kMaxChunks, usual.max_chunks, name);
  if (!chunks) return chunks.error();
  auto edges = number_of(file, kMaxEdges, usual.max_edges, name);
  if (!edges) return edges.error();
  return RowShape{usual.tokens, *chunks, *edges};
}

}  // namespace

Result<Rows> rows_of(const Safetensors& file, std::string_view name) {
  auto shape = shape_of(file, name);
  if (!shape) return shape.error();
  auto pad_id = number_of(file, kPadId, 0, name);
  if (!pad_id) return pad_id.error();
  const int64_t n = file.tensors.find("input_ids")->second.shape[0];
  if (auto e = check_size(*shape, n); !e) return e.error();
  // What is there is checked before anything is allocated for it.
  for (size_t c = 0; c < kRowColumns; ++c) {
    const auto column = static_cast<RowColumn>(c);
    auto tensor = find(file, spec_of(column), name);
    if (!tensor) return tensor.error();
    if (*tensor && (*tensor)->shape != shape->array(column, n)) {
      return invalid("data", "column {} must be {}, found {} for {}",
                     spec_of(column).name, shape_text(shape->array(column, n)),
                     shape_text((*tensor)->shape), in_quotes(name));
    }
  }
  auto rows = Rows::make(*shape, n, static_cast<int32_t>(*pad_id));
  if (!rows) return rows.error();
  for (size_t c = 0; c < kRowColumns; ++c) {
    const auto at = file.tensors.find(row_columns()[c].name);
    if (at == file.tensors.end()) continue;
    rows->columns[c] = load_array<int32_t>(at->second.bytes);
  }
  if (auto e = check_rows(*rows, name); !e) return e.error();
  return std::move(*rows);
}

Result<std::string> encode_rows(const Rows& rows) {
  Safetensors file;
  file.metadata = {
      {std::string(kPadId), std::to_string(rows.pad_id)},
      {std::string(kMaxChunks), std::to_string(rows.shape.max_chunks)},
      {std::string(kMaxEdges), std::to_string(rows.shape.max_edges)}};
  for (size_t c = 0; c < kRowColumns; ++c) {
    const auto column = static_cast<RowColumn>(c);
    const RowColumnSpec& spec = spec_of(column);
    const std::vector<int32_t>& values = rows.columns[c];
    const auto is_padding = [&](int32_t v) { return v == spec.padding; };
    if (!spec.required &&
        std::all_of(values.begin(), values.end(), is_padding)) {
      continue;
    }
    file.tensors[std::string(spec.name)] = {
        spec.dtype, rows.shape.array(column, rows.rows),
        bytes_of(std::span<const int32_t>(values))};
  }
  return write_safetensors(file);
}

}  // namespace tessera::data

namespace tessera {

Result<void> save_rows(const std::string& path, const Rows& rows) {
  if (auto e = check_rows(rows, path); !e) return e;
  auto bytes = data::encode_rows(rows);
  if (!bytes) return bytes.error();
  return write_file(path, *bytes);
}

Result<Rows> load_rows(const std::string& path) {
  if (is_row_file(path)) return data::load_row_file(path);
  auto bytes = read_file(path, data::kMaxFileBytes);
  if (!bytes) return bytes.error();
  auto file = parse_safetensors(*bytes);
  if (!file) return file.error();
  return data::rows_of(*file, path);
}

}  // namespace tessera
