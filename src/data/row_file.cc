// data/row_file.cc: packed rows in a .safetensors file, one tensor per column.
#include "data/row_file.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <memory>
#include <utility>

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

// A tensor, or null if an optional one is absent; checks its type.
Result<const SafetensorsHeader::Entry*> find(const SafetensorsHeader& file,
                                             const RowColumnSpec& spec,
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

// The tokens are those of input_ids; metadata may set max_chunks and max_edges.
Result<RowShape> shape_of(const SafetensorsHeader& file,
                          std::string_view name) {
  auto ids = find(file, spec_of(RowColumn::input_ids), name);
  if (!ids) return ids.error();
  if ((*ids)->shape.size() != 2) {
    return invalid("data", "input_ids must be [rows, tokens], found {} for {}",
                   shape_text((*ids)->shape), in_quotes(name));
  }
  const RowShape usual = RowShape::of((*ids)->shape[1]);
  auto chunks = number_of(file.metadata, kMaxChunks, usual.max_chunks, name);
  if (!chunks) return chunks.error();
  auto edges = number_of(file.metadata, kMaxEdges, usual.max_edges, name);
  if (!edges) return edges.error();
  return RowShape{usual.tokens, *chunks, *edges};
}

// Bytes [begin, end) of a file.
using ReadBytes =
    std::function<Result<void>(int64_t begin, int64_t end, char* to)>;

// Numbers of all columns in memory at a time; at least one row is.
constexpr int64_t kBatchNumbers = int64_t{1} << 20;

class SafetensorsRows : public RowBatches {
 public:
  SafetensorsRows(std::string name, ReadBytes read, int64_t size)
      : name_(std::move(name)), read_(std::move(read)), size_(size) {}

  // Must be called first. Checks the header before anything is allocated.
  Result<void> read_header(int64_t first_row) {
    std::string start;
    if (auto e = extend(start, std::min(size_, kSafetensorsStart)); !e) {
      return e;
    }
    const auto bytes = safetensors_header_size(start, size_);
    if (!bytes) return in_file(bytes.error(), name_);
    if (auto e = extend(start, *bytes); !e) return e;
    auto header = parse_safetensors_header(start, size_);
    if (!header) return in_file(header.error(), name_);
    header_ = std::move(*header);
    auto shape = shape_of(header_, name_);
    if (!shape) return shape.error();
    shape_ = *shape;
    auto pad_id = number_of(header_.metadata, kPadId, 0, name_);
    if (!pad_id) return pad_id.error();
    pad_id_ = static_cast<int32_t>(*pad_id);
    rows_ = header_.tensors.find("input_ids")->second.shape[0];
    row_ = std::min(first_row, rows_);
    if (auto e = check_size(shape_, 0, in_quotes(name_)); !e) return e;
    return check_columns();
  }

  const RowShape& shape() const override { return shape_; }
  int32_t pad_id() const override { return pad_id_; }
  int64_t rows() const override { return rows_; }

  Result<Rows> next() override {
    return next(std::max<int64_t>(1, kBatchNumbers / numbers_of_row(shape_)));
  }

  Result<Rows> next(int64_t most) {
    const int64_t n = std::min(most, rows_ - row_);
    if (auto e = check_size(shape_, n, in_quotes(name_)); !e) return e.error();
    auto rows = Rows::make(shape_, n, pad_id_);
    if (!rows) return rows.error();
    for (size_t c = 0; c < kRowColumns; ++c) {
      const auto at = header_.tensors.find(row_columns()[c].name);
      if (at == header_.tensors.end()) continue;
      const int64_t each = 4 * shape_.size(static_cast<RowColumn>(c));
      const int64_t begin = at->second.begin + row_ * each;
      if (auto e = read_(begin, begin + n * each,
                         reinterpret_cast<char*>(rows->columns[c].data()));
          !e) {
        return e.error();
      }
    }
    if (auto e = check_rows_from(row_, *rows, name_); !e) return e.error();
    row_ += n;
    return std::move(*rows);
  }

 private:
  Result<void> extend(std::string& start, int64_t to) const {
    const auto begin = static_cast<int64_t>(start.size());
    start.resize(static_cast<size_t>(to));
    return read_(begin, to, start.data() + begin);
  }

  Result<void> check_columns() const {
    for (size_t c = 0; c < kRowColumns; ++c) {
      const auto column = static_cast<RowColumn>(c);
      auto tensor = find(header_, spec_of(column), name_);
      if (!tensor) return tensor.error();
      if (!*tensor) {
        auto e = check_filled(shape_, column, in_quotes(name_));
        if (!e) return e;
        continue;
      }
      if ((*tensor)->shape == shape_.array(column, rows_)) continue;
      return invalid("data", "column {} must be {}, found {} for {}",
                     spec_of(column).name,
                     shape_text(shape_.array(column, rows_)),
                     shape_text((*tensor)->shape), in_quotes(name_));
    }
    return {};
  }

  std::string name_;
  ReadBytes read_;
  int64_t size_;
  SafetensorsHeader header_;
  RowShape shape_;
  int32_t pad_id_ = 0;
  int64_t rows_ = 0, row_ = 0;  // all; the next
};

Result<std::unique_ptr<SafetensorsRows>> open_file(const std::string& path,
                                                   int64_t first_row) {
  auto file = std::make_shared<FileReader>();
  if (auto e = file->open(path); !e) return e.error();
  const int64_t size = file->size();
  auto made = std::make_unique<SafetensorsRows>(
      path,
      [file](int64_t begin, int64_t end, char* to) {
        return file->read(begin, end, to);
      },
      size);
  if (auto e = made->read_header(first_row); !e) return e.error();
  return made;
}

}  // namespace

Result<int64_t> number_of(const Metadata& metadata, std::string_view key,
                          int64_t otherwise, std::string_view name) {
  const auto at = metadata.find(key);
  if (at == metadata.end()) return otherwise;
  int32_t n = 0;
  const std::string& text = at->second;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size()) {
    return invalid("data", "{} must be an integer of 32 bits, found {} for {}",
                   key, in_quotes(text), in_quotes(name));
  }
  return n;
}

Result<std::unique_ptr<RowBatches>> open_safetensors_rows(
    const std::string& path, int64_t first_row) {
  auto made = open_file(path, first_row);
  if (!made) return made.error();
  return std::unique_ptr<RowBatches>(std::move(*made));
}

Result<Rows> load_safetensors_rows(const std::string& path) {
  auto made = open_file(path, 0);
  if (!made) return made.error();
  return (*made)->next((*made)->rows());
}

Result<Rows> decode_rows(std::string_view bytes, std::string_view name) {
  SafetensorsRows rows(
      std::string(name),
      [bytes](int64_t begin, int64_t end, char* to) -> Result<void> {
        const auto part = bytes.substr(static_cast<size_t>(begin),
                                       static_cast<size_t>(end - begin));
        std::copy(part.begin(), part.end(), to);
        return {};
      },
      static_cast<int64_t>(bytes.size()));
  if (auto e = rows.read_header(0); !e) return e.error();
  return rows.next(rows.rows());
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
    file.tensors[std::string(spec.name)] = {
        spec.dtype, rows.shape.array(column, rows.rows),
        bytes_of(std::span<const int32_t>(rows.columns[c]))};
  }
  return write_safetensors(file);
}

}  // namespace tessera::data

namespace tessera {

Result<void> save_rows(const std::string& path, const Rows& rows) {
  if (is_row_file(path)) return data::write_row_file(path, rows);
  if (auto e = check_rows(rows, path); !e) return e;
  auto bytes = data::encode_rows(rows);
  if (!bytes) return bytes.error();
  return write_file(path, *bytes);
}

Result<Rows> load_rows(const std::string& path) {
  return is_row_file(path) ? data::load_row_file(path)
                           : data::load_safetensors_rows(path);
}

}  // namespace tessera
