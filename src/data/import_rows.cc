// data/import_rows.cc: reads packed rows from an Arrow C stream.
#include "data/import_rows.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "data/arrow_batch.h"
#include "data/arrow_numbers.h"
#include "data/arrow_owned.h"
#include "data/row_file.h"

namespace tessera::data {
namespace {

// A column of the stream that is a column of rows.
struct Column {
  int64_t child = 0;
  ArrowType type;
};
using Columns = std::array<std::optional<Column>, kRowColumns>;

// The sizes of nested lists, outermost first; nothing if the type does not hold
// int32.
std::optional<std::vector<int64_t>> sizes_of(const ArrowType& type) {
  std::vector<int64_t> out;
  const ArrowType* at = &type;
  for (; at->kind == ArrowKind::fixed_list; at = at->item.get()) {
    out.push_back(at->size);
  }
  if (at->kind != ArrowKind::integer || at->bytes != 4 || !at->is_signed ||
      at->dictionary) {
    return std::nullopt;
  }
  return out;
}

// A schema's metadata: a count, then pairs of texts, each after its size.
Metadata metadata_of(const char* bytes) {
  Metadata out;
  if (bytes == nullptr) return out;
  bool good = true;
  const auto take = [&] {
    const auto size = load<int32_t>(bytes, 0);
    bytes += sizeof(size);
    good = good && size >= 0;
    return size;
  };
  const auto take_text = [&] {
    const int32_t size = take();
    if (!good) return std::string();
    bytes += size;
    return std::string(bytes - size, static_cast<size_t>(size));
  };
  for (int32_t left = take(); good && left > 0; --left) {
    std::string key = take_text();
    if (!good) break;
    std::string value = take_text();
    if (good) out.emplace(std::move(key), std::move(value));
  }
  return out;
}

class Import : public RowBatches {
 public:
  Import(ArrowArrayStream& stream, std::string name, int64_t first_row)
      : stream_(stream), name_(std::move(name)), row_(first_row) {}

  // Must be called first.
  Result<void> read_columns() {
    Owned<ArrowSchema> schema;
    if (stream_->get_schema(stream_.get(), schema.get()) != 0) {
      return stopped("its columns");
    }
    const ArrowSchema& s = *schema;
    if (schema.there() && s.format != nullptr &&
        std::string_view(s.format) == "+s" && s.n_children >= 0 &&
        (s.n_children == 0 || s.children != nullptr)) {
      return read_schema(s);
    }
    return invalid("data",
                   "a file must have columns, found another type for {}",
                   in_quotes(name_));
  }

  const RowShape& shape() const override { return shape_; }
  int32_t pad_id() const override { return pad_id_; }

  Result<Rows> next() override { return read(false); }
  Result<Rows> all() { return read(true); }

 private:
  // Reads to the end, or until there are some rows.
  Result<Rows> read(bool all) {
    auto rows = Rows::make(shape_, 0, pad_id_);
    if (!rows) return rows.error();
    while (all || rows->rows == 0) {
      Owned<ArrowArray> batch;
      if (stream_->get_next(stream_.get(), batch.get()) != 0) {
        return stopped("its rows");
      }
      if (!batch.there()) break;
      if (auto e = add(*batch, *rows); !e) return e.error();
    }
    if (auto e = check_rows_from(row_, *rows, name_); !e) return e.error();
    row_ += rows->rows;
    return std::move(*rows);
  }

  Error stopped(std::string_view what) {
    const char* const said = stream_->get_last_error(stream_.get());
    return io_error("data", "a file must give {}, found {} for {}", what,
                    in_quotes(said == nullptr ? "" : said, 1024),
                    in_quotes(name_));
  }

  Result<void> read_schema(const ArrowSchema& schema) {
    std::array<std::vector<int64_t>, kRowColumns> sizes;
    stream_columns_ = schema.n_children;
    for (int64_t i = 0; i < schema.n_children; ++i) {
      const ArrowSchema* const child = schema.children[i];
      if (child == nullptr || child->name == nullptr) continue;
      const auto specs = row_columns();
      const auto spec =
          std::find_if(specs.begin(), specs.end(), [&](const auto& s) {
            return s.name == std::string_view(child->name);
          });
      if (spec == specs.end()) continue;
      const auto c = static_cast<size_t>(spec - specs.begin());
      ArrowType type = arrow_type_of(child);
      auto found = sizes_of(type);
      if (!found || columns_[c]) {
        return invalid("data",
                       "column {} must be there once, of int32 in lists of a "
                       "fixed size, found {} for {}",
                       spec->name, columns_[c] ? "it twice" : "another type",
                       in_quotes(name_));
      }
      columns_[c] = Column{i, std::move(type)};
      sizes[c] = std::move(*found);
    }
    if (auto e = read_shape(sizes, metadata_of(schema.metadata)); !e) return e;
    return check_columns(sizes);
  }

  Result<void> read_shape(
      const std::array<std::vector<int64_t>, kRowColumns>& sizes,
      const Metadata& metadata) {
    const auto& ids = sizes[static_cast<size_t>(RowColumn::input_ids)];
    shape_ = RowShape::of(ids.empty() ? 0 : ids[0]);
    int64_t pad_id = 0;
    for (const auto& [to, key] : {std::pair{&shape_.max_chunks, "max_chunks"},
                                  std::pair{&shape_.max_edges, "max_edges"},
                                  std::pair{&pad_id, "pad_id"}}) {
      const auto n = number_of(metadata, key, *to, name_);
      if (!n) return n.error();
      *to = *n;
    }
    pad_id_ = static_cast<int32_t>(pad_id);
    return {};
  }

  Result<void> check_columns(
      const std::array<std::vector<int64_t>, kRowColumns>& sizes) const {
    for (size_t c = 0; c < kRowColumns; ++c) {
      const RowColumnSpec& spec = row_columns()[c];
      if (columns_[c] || !spec.required) continue;
      return invalid("data", "rows must have the column {}, found none for {}",
                     spec.name, in_quotes(name_));
    }
    if (auto e = check_size(shape_, 0, in_quotes(name_)); !e) return e;
    for (size_t c = 0; c < kRowColumns; ++c) {
      const auto column = static_cast<RowColumn>(c);
      if (!columns_[c]) {
        if (auto e = check_filled(shape_, column, in_quotes(name_)); !e)
          return e;
        continue;
      }
      std::vector<int64_t> want = shape_.array(column, 0);
      want.erase(want.begin());
      if (sizes[c] == want) continue;
      return invalid("data",
                     "column {} must be lists of [{}], found [{}] for {}",
                     row_columns()[c].name, fmt::join(want, ", "),
                     fmt::join(sizes[c], ", "), in_quotes(name_));
    }
    return {};
  }

  // Checks the batch before its numbers are read.
  Result<void> check_batch(const ArrowArray& batch, int64_t row) const {
    const std::string place =
        fmt::format("the rows from {} on of {}", row, in_quotes(name_));
    if (auto e = check_arrow_batch(batch, stream_columns_, place); !e) return e;
    for (size_t c = 0; c < kRowColumns; ++c) {
      if (!columns_[c]) continue;
      auto e = check_arrow_array(
          columns_[c]->type, batch.children[columns_[c]->child],
          fmt::format("column {} of {}", row_columns()[c].name, place));
      if (!e) return e;
    }
    for (int64_t i = 0; batch.null_count != 0 && i < batch.length; ++i) {
      if (is_there(batch, i)) continue;
      return invalid("data", "a row must be there, found null for row {} of {}",
                     row + i, in_quotes(name_));
    }
    return {};
  }

  Result<void> add(const ArrowArray& batch, Rows& rows) {
    if (auto e = check_batch(batch, row_ + rows.rows); !e) return e;
    if (auto e = check_size(shape_, rows.rows + batch.length, in_quotes(name_));
        !e) {
      return e;
    }
    for (size_t c = 0; c < kRowColumns; ++c) {
      const auto column = static_cast<RowColumn>(c);
      const RowColumnSpec& spec = spec_of(column);
      std::vector<int32_t>& to = rows.columns[c];
      int64_t count = batch.length;
      if (!columns_[c]) {
        to.resize(
            static_cast<size_t>((rows.rows + count) * shape_.size(column)),
            spec.pad_id ? pad_id_ : spec.padding);
        continue;
      }
      const ArrowArray* array = batch.children[columns_[c]->child];
      int64_t first = batch.offset + array->offset, size = 1;
      const std::vector<int64_t> lists = shape_.array(column, 0);
      for (size_t level = 1;; ++level) {
        if (auto e =
                check_nulls(*array, first, count, size, spec, row_ + rows.rows);
            !e) {
          return e;
        }
        if (level == lists.size()) break;
        const int64_t each = lists[level];
        array = array->children[0];
        first = first * each + array->offset;
        count *= each;
        size *= each;
      }
      if (count == 0) continue;
      const size_t begin = to.size();
      to.resize(begin + static_cast<size_t>(count));
      std::memcpy(to.data() + begin,
                  static_cast<const char*>(array->buffers[1]) +
                      first * static_cast<int64_t>(sizeof(int32_t)),
                  static_cast<size_t>(count) * sizeof(int32_t));
    }
    rows.rows += batch.length;
    return {};
  }

  Result<void> check_nulls(const ArrowArray& array, int64_t first,
                           int64_t count, int64_t size,
                           const RowColumnSpec& spec, int64_t row) const {
    if (array.null_count == 0) return {};
    for (int64_t i = 0; i < count; ++i) {
      if (is_there(array, first - array.offset + i)) continue;
      return invalid("data",
                     "column {} must have no null, found one for row {} of {}",
                     spec.name, row + i / size, in_quotes(name_));
    }
    return {};
  }

  Owned<ArrowArrayStream> stream_;
  std::string name_;
  int64_t row_ = 0;  // the next row's number
  int64_t stream_columns_ = 0;
  Columns columns_;
  RowShape shape_;
  int32_t pad_id_ = 0;
};

}  // namespace

Result<std::unique_ptr<RowBatches>> open_row_batches(ArrowArrayStream& stream,
                                                     std::string name,
                                                     int64_t first_row) {
  auto made = std::make_unique<Import>(stream, std::move(name), first_row);
  if (auto e = made->read_columns(); !e) return e.error();
  return std::unique_ptr<RowBatches>(std::move(made));
}

Result<Rows> import_rows(ArrowArrayStream& stream, const std::string& name) {
  Import import(stream, name, 0);
  if (auto e = import.read_columns(); !e) return e.error();
  return import.all();
}

}  // namespace tessera::data
