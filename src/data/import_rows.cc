// data/import_rows.cc: packed rows from an Arrow C stream.
#include "data/import_rows.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "data/arrow_batch.h"
#include "data/row_file.h"

namespace tessera::data {
namespace {

// Released once.
template <class T>
struct Held {
  T value = {};
  Held() = default;
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    if (value.release != nullptr) value.release(&value);
  }
};

// Which of a stream's columns is one of a row.
using Children = std::array<std::optional<int64_t>, kRowColumns>;

// Sizes of the lists in a column, from outside in; nothing where it does not
// hold int32.
std::optional<std::vector<int64_t>> sizes_of(const ArrowSchema& schema) {
  std::vector<int64_t> out;
  const ArrowSchema* at = &schema;
  for (; std::string_view(at->format).starts_with("+w:");
       at = at->children[0]) {
    const std::string_view text = std::string_view(at->format).substr(3);
    int64_t size = -1;
    std::from_chars(text.data(), text.data() + text.size(), size);
    out.push_back(size);
  }
  if (std::string_view(at->format) != "i" || at->dictionary != nullptr) {
    return std::nullopt;
  }
  return out;
}

// A number of the schema's metadata.
std::optional<int32_t> number_in(const char* metadata, std::string_view key) {
  if (metadata == nullptr) return std::nullopt;
  const auto take = [&metadata] {
    int32_t size = 0;
    std::memcpy(&size, metadata, sizeof(size));
    metadata += sizeof(size);
    return size;
  };
  const auto take_text = [&] {
    const int32_t size = take();
    metadata += size;
    return std::string_view(metadata - size, static_cast<size_t>(size));
  };
  for (int32_t left = take(); left > 0; --left) {
    const std::string_view name = take_text(), value = take_text();
    int32_t n = 0;
    const auto [end, error] =
        std::from_chars(value.data(), value.data() + value.size(), n);
    if (name == key && error == std::errc() &&
        end == value.data() + value.size()) {
      return n;
    }
  }
  return std::nullopt;
}

class Import : public RowBatches {
 public:
  Import(ArrowArrayStream& stream, std::string name, int64_t first_row)
      : name_(std::move(name)), row_(first_row) {
    stream_.value = stream;
    stream.release = nullptr;
  }

  // Before all else.
  Result<void> read_columns() {
    Held<ArrowSchema> schema;
    if (stream_.value.get_schema(&stream_.value, &schema.value) != 0) {
      return stopped("its columns");
    }
    return read_schema(schema.value);
  }

  Result<Rows> next() override { return read(false); }
  Result<Rows> all() { return read(true); }

 private:
  // To the end, or until there are some.
  Result<Rows> read(bool all) {
    auto rows = Rows::make(shape_, 0, pad_id_);
    if (!rows) return rows.error();
    while (all || rows->rows == 0) {
      Held<ArrowArray> batch;
      if (stream_.value.get_next(&stream_.value, &batch.value) != 0) {
        return stopped("its rows");
      }
      if (batch.value.release == nullptr) break;
      if (auto e = add(batch.value, *rows); !e) return e.error();
    }
    if (auto e = check_rows_from(row_, *rows, name_); !e) return e.error();
    row_ += rows->rows;
    return std::move(*rows);
  }

  Error stopped(std::string_view what) {
    const char* const said = stream_.value.get_last_error(&stream_.value);
    return io_error("data", "a file must give {}, found {} for {}", what,
                    in_quotes(said == nullptr ? "" : said, 1024),
                    in_quotes(name_));
  }

  Result<void> read_schema(const ArrowSchema& schema) {
    std::array<std::vector<int64_t>, kRowColumns> sizes;
    for (int64_t i = 0; i < schema.n_children; ++i) {
      const ArrowSchema& child = *schema.children[i];
      const auto specs = row_columns();
      const auto spec =
          std::find_if(specs.begin(), specs.end(), [&](const auto& s) {
            return s.name == std::string_view(child.name);
          });
      if (spec == specs.end()) continue;
      const auto c = static_cast<size_t>(spec - specs.begin());
      auto found = sizes_of(child);
      if (!found || children_[c]) {
        return invalid("data",
                       "column {} must be there once, of int32 in lists of a "
                       "fixed size, found {} for {}",
                       spec->name, children_[c] ? "it twice" : "another type",
                       in_quotes(name_));
      }
      children_[c] = i;
      sizes[c] = std::move(*found);
    }
    return read_shape(sizes, schema.metadata);
  }

  Result<void> read_shape(
      const std::array<std::vector<int64_t>, kRowColumns>& sizes,
      const char* metadata) {
    const auto size = [&](RowColumn column) {
      const std::vector<int64_t>& s = sizes[static_cast<size_t>(column)];
      return s.empty() ? int64_t{0} : s[0];
    };
    shape_ = RowShape::of(size(RowColumn::input_ids));
    for (const auto& [to, key] : {std::pair{&shape_.max_chunks, "max_chunks"},
                                  std::pair{&shape_.max_edges, "max_edges"}}) {
      if (const auto n = number_in(metadata, key)) *to = *n;
    }
    pad_id_ = number_in(metadata, "pad_id").value_or(0);
    if (auto e = check_size(shape_, 0); !e) return e;
    for (size_t c = 0; c < kRowColumns; ++c) {
      const RowColumnSpec& spec = row_columns()[c];
      if (!children_[c] && !spec.required) continue;
      if (!children_[c]) {
        return invalid("data",
                       "rows must have the column {}, found none for {}",
                       spec.name, in_quotes(name_));
      }
      std::vector<int64_t> want = shape_.array(static_cast<RowColumn>(c), 0);
      want.erase(want.begin());
      if (sizes[c] == want) continue;
      return invalid("data",
                     "column {} must be lists of [{}], found [{}] for {}",
                     spec.name, fmt::join(want, ", "),
                     fmt::join(sizes[c], ", "), in_quotes(name_));
    }
    return {};
  }

  Result<void> add(const ArrowArray& batch, Rows& rows) {
    if (auto e = check_size(shape_, rows.rows + batch.length); !e) return e;
    for (size_t c = 0; c < kRowColumns; ++c) {
      const auto column = static_cast<RowColumn>(c);
      const RowColumnSpec& spec = spec_of(column);
      std::vector<int32_t>& to = rows.columns[c];
      int64_t count = batch.length;
      if (!children_[c]) {
        to.resize(
            static_cast<size_t>((rows.rows + count) * shape_.size(column)),
            spec.pad_id ? pad_id_ : spec.padding);
        continue;
      }
      const ArrowArray* array = batch.children[*children_[c]];
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
      const auto* const begin =
          static_cast<const int32_t*>(array->buffers[1]) + first;
      to.insert(to.end(), begin, begin + count);
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

  Held<ArrowArrayStream> stream_;
  std::string name_;
  int64_t row_ = 0;  // the next
  Children children_;
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
