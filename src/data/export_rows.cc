// data/export_rows.cc: packed rows as an Arrow C stream. Each struct of the C
// interface owns its memory, so it may outlive the others.
#include "data/export_rows.h"

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/fail.h"

namespace tessera::data {
namespace {

// The sizes of the nested lists in each row of a column, outermost first.
std::vector<int64_t> lists_of(const RowShape& shape, RowColumn column) {
  std::vector<int64_t> out = shape.array(column, 0);
  out.erase(out.begin());
  return out;
}

// The memory of a schema or an array, with its release callback.
template <class T>
struct Owner {
  std::string format, name, metadata;
  std::vector<T> parts;
  std::vector<T*> children;
  std::shared_ptr<const Rows> rows;
  const void* buffers[2] = {nullptr, nullptr};

  static void release(T* self) {
    auto* const owner = static_cast<Owner*>(self->private_data);
    for (T* const child : owner->children) {
      if (child->release != nullptr) child->release(child);
    }
    self->release = nullptr;
    delete owner;
  }
  // The owner keeps the parts at a fixed address.
  void adopt(T& self) {
    for (T& part : parts) children.push_back(&part);
    self.n_children = static_cast<int64_t>(children.size());
    self.children = children.data();
    self.release = &release;
    self.private_data = this;
  }
};

ArrowSchema schema_of(std::string name, std::string format,
                      std::vector<ArrowSchema> parts,
                      std::string metadata = "") {
  auto* const owner = new Owner<ArrowSchema>;
  owner->format = std::move(format);
  owner->name = std::move(name);
  owner->metadata = std::move(metadata);
  owner->parts = std::move(parts);
  ArrowSchema out = {};
  out.format = owner->format.c_str();
  out.name = owner->name.c_str();
  if (!owner->metadata.empty()) out.metadata = owner->metadata.c_str();
  owner->adopt(out);
  return out;
}

// int32 in nested lists of these sizes.
ArrowSchema column_schema(std::string name, std::span<const int64_t> lists) {
  if (lists.empty()) return schema_of(std::move(name), "i", {});
  return schema_of(std::move(name), fmt::format("+w:{}", lists[0]),
                   {column_schema("item", lists.subspan(1))});
}

ArrowArray array_of(std::shared_ptr<const Rows> rows, int64_t length,
                    const int32_t* numbers, std::vector<ArrowArray> parts) {
  auto* const owner = new Owner<ArrowArray>;
  owner->rows = std::move(rows);
  owner->buffers[1] = numbers;
  owner->parts = std::move(parts);
  ArrowArray out = {};
  out.length = length;
  out.n_buffers = numbers != nullptr ? 2 : 1;
  out.buffers = owner->buffers;
  owner->adopt(out);
  return out;
}

ArrowArray column_array(const std::shared_ptr<const Rows>& rows,
                        const std::vector<int32_t>& numbers, int64_t length,
                        std::span<const int64_t> lists) {
  if (lists.empty()) return array_of(rows, length, numbers.data(), {});
  return array_of(
      rows, length, nullptr,
      {column_array(rows, numbers, length * lists[0], lists.subspan(1))});
}

// Metadata in the encoding of Arrow's C interface.
std::string metadata_of(const Rows& rows) {
  const std::pair<std::string, int64_t> entries[] = {
      {"pad_id", rows.pad_id},
      {"max_chunks", rows.shape.max_chunks},
      {"max_edges", rows.shape.max_edges}};
  std::string out;
  const auto add_number = [&](size_t n) {
    const auto number = static_cast<int32_t>(n);
    out += bytes_of(std::span<const int32_t>(&number, 1));
  };
  const auto add_text = [&](const std::string& text) {
    add_number(text.size());
    out += text;
  };
  add_number(std::size(entries));
  for (const auto& [key, value] : entries) {
    add_text(key);
    add_text(std::to_string(value));
  }
  return out;
}

using SharedRows = std::shared_ptr<const Rows>;

struct Stream {
  SharedRows first;  // null once it was returned
  std::string metadata;
  RowShape shape;
  int32_t pad_id = 0;
  std::function<Result<Rows>()> next;  // empty: `first` has all rows
  std::string name;
  std::optional<Error>& error;

  // Null at the end.
  Result<SharedRows> take() {
    SharedRows rows = std::exchange(first, nullptr);
    if (!rows) {
      if (!next) return rows;
      auto more = next();
      if (!more) return more.error();
      rows = std::make_shared<const Rows>(std::move(*more));
    }
    if (rows->shape != shape || rows->pad_id != pad_id) {
      return invalid("data",
                     "rows of one file must be of one shape and pad id, found "
                     "{} tokens and {} after {} and {}",
                     rows->shape.tokens, rows->pad_id, shape.tokens, pad_id);
    }
    if (auto e = check_rows(*rows, name); !e) return e.error();
    return rows;
  }
};

Stream& stream_of(ArrowArrayStream* self) {
  return *static_cast<Stream*>(self->private_data);
}

int get_schema(ArrowArrayStream* self, ArrowSchema* out) {
  const Stream& s = stream_of(self);
  std::vector<ArrowSchema> columns;
  for (size_t c = 0; c < kRowColumns; ++c) {
    columns.push_back(
        column_schema(std::string(row_columns()[c].name),
                      lists_of(s.shape, static_cast<RowColumn>(c))));
  }
  *out = schema_of("", "+s", std::move(columns), s.metadata);
  return 0;
}

int get_next(ArrowArrayStream* self, ArrowArray* out) {
  Stream& s = stream_of(self);
  *out = {};
  if (s.error) return EIO;
  auto rows = s.take();
  if (!rows) {
    s.error = rows.error();
    return EIO;
  }
  const SharedRows& shared = *rows;
  if (!shared || shared->rows == 0) return 0;
  std::vector<ArrowArray> columns;
  for (size_t c = 0; c < kRowColumns; ++c) {
    columns.push_back(
        column_array(shared, shared->columns[c], shared->rows,
                     lists_of(s.shape, static_cast<RowColumn>(c))));
  }
  *out = array_of(shared, shared->rows, nullptr, std::move(columns));
  return 0;
}

const char* get_last_error(ArrowArrayStream* self) {
  const Stream& s = stream_of(self);
  return s.error ? s.error->message.c_str() : nullptr;
}

void release(ArrowArrayStream* self) {
  delete &stream_of(self);
  self->release = nullptr;
}

void open(SharedRows first, std::function<Result<Rows>()> next,
          std::string name, std::optional<Error>& error,
          ArrowArrayStream* out) {
  std::string metadata = metadata_of(*first);
  const RowShape shape = first->shape;
  const int32_t pad_id = first->pad_id;
  *out = {&get_schema, &get_next, &get_last_error, &release,
          new Stream{std::move(first), std::move(metadata), shape, pad_id,
                     std::move(next), std::move(name), error}};
}

}  // namespace

void export_rows(Rows first, std::function<Result<Rows>()> next,
                 std::string name, std::optional<Error>& error,
                 ArrowArrayStream* out) {
  open(std::make_shared<const Rows>(std::move(first)), std::move(next),
       std::move(name), error, out);
}

void export_borrowed_rows(const Rows& rows, std::string name,
                          std::optional<Error>& error, ArrowArrayStream* out) {
  const SharedRows borrowed(SharedRows(), &rows);  // does not own the rows
  open(borrowed, nullptr, std::move(name), error, out);
}

}  // namespace tessera::data
