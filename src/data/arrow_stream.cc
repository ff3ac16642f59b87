// data/arrow_stream.cc: documents from an Arrow C stream, one batch at a time.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "data/arrow_batch.h"
#include "data/arrow_documents.h"
#include "data/arrow_owned.h"
#include "data/arrow_type.h"
#include "data/document_fields.h"
#include "tessera/documents.h"

namespace tessera {
namespace {

using data::ArrowItems;
using data::ArrowPlace;
using data::ArrowType;
using data::ArrowValue;
using data::Field;
using data::kFields;
using data::name_of;
using data::Owned;

// The column of a batch that holds a field, and the column's type.
struct Column {
  int64_t child = 0;
  ArrowType type;
};
using Columns = std::array<std::optional<Column>, kFields>;

// The fields of one row of a batch.
class ArrowFields : public data::DocumentFields {
 public:
  ArrowFields(const Columns& columns, const ArrowArray& batch,
              const ArrowPlace& place)
      : columns_(columns), batch_(batch), place_(place) {}

  // A bad dictionary index counts as present: reading it gives the error.
  bool has(Field field) const override {
    if (!columns_[static_cast<size_t>(field)]) return false;
    if (!data::is_there(batch_, place_.row)) return false;
    auto found = value(field);
    return !found || !found->is_null();
  }

  Result<void> numbers(Field field, int64_t least, int64_t most,
                       std::vector<int32_t>& to) const override {
    auto found = value(field);
    if (!found) return found.error();
    return data::add_integers(data::items_of(*found), {least, most},
                              name_of(field), place_, to);
  }

  Result<void> pairs(Field field, std::vector<int32_t>& to) const override {
    auto found = value(field);
    if (!found) return found.error();
    const ArrowItems lists = data::items_of(*found);
    if (auto e = data::check_count(lists, name_of(field), place_); !e) return e;
    for (int64_t i = 0; i < lists.count; ++i) {
      auto list = data::arrow_value(*lists.type, *lists.array, lists.first + i,
                                    name_of(field), place_);
      if (!list) return list.error();
      const ArrowItems pair =
          list->is_null() ? ArrowItems{} : data::items_of(*list);
      if (pair.count != 2) {
        return invalid(
            "data", "{} must be a list of pairs, found {} for element {} of {}",
            name_of(field),
            list->is_null() ? "null" : fmt::format("a list of {}", pair.count),
            i, place());
      }
      if (auto e = data::add_integers(pair, {0, INT32_MAX}, name_of(field),
                                      place_, to);
          !e) {
        return e;
      }
    }
    return {};
  }

  Result<std::string> text(Field field) const override {
    auto found = value(field);
    if (!found) return found.error();
    return data::text_of(*found);
  }

  std::string place() const override { return place_.words(); }

 private:
  Result<ArrowValue> value(Field field) const {
    const Column& column = *columns_[static_cast<size_t>(field)];
    return data::arrow_value(column.type, *batch_.children[column.child],
                             batch_.offset + place_.row, name_of(field),
                             place_);
  }

  const Columns& columns_;
  const ArrowArray& batch_;
  ArrowPlace place_;
};

class ArrowDocuments : public DocumentSource {
 public:
  ArrowDocuments(ArrowArrayStream& stream, data::ArrowOrigin origin)
      : stream_(stream),
        name_(std::move(origin.name)),
        is_file_(origin.is_file),
        documents_(origin.first_row) {}

  Result<void> open() {
    Owned<ArrowSchema> schema;
    if (auto e = call(stream_->get_schema, schema.get(), "its schema"); !e) {
      return e;
    }
    if (!schema.there() || schema->format == nullptr ||
        std::string_view(schema->format) != "+s" ||
        schema->dictionary != nullptr || schema->n_children < 0 ||
        (schema->n_children > 0 && schema->children == nullptr)) {
      return invalid(
          "data",
          "an Arrow stream must give batches of columns, found the format {} "
          "for {}",
          schema.there() && schema->format != nullptr
              ? in_quotes(schema->format, 40)
              : "''",
          name_);
    }
    children_ = schema->n_children;
    for (int64_t c = 0; c < children_; ++c) {
      if (auto e = add_column(schema->children[c], c); !e) return e;
    }
    const auto has = [&](std::string_view name) {
      return data::has_column(*schema, name);
    };
    if (auto e = data::refuse_rows(has, name_); !e) return e;
    if (columns_[static_cast<size_t>(Field::input_ids)]) return {};
    return invalid("data",
                   "documents must have the column input_ids, found none for "
                   "{}",
                   name_);
  }

  Result<bool> read(Documents& into) override {
    auto more = find_row();
    if (!more || !*more) return more;
    const int64_t first = is_file_ ? documents_ - row_ : -1;
    const ArrowFields fields(columns_, *batch_,
                             {row_, batches_ - 1, first, name_});
    if (auto e = data::add_document(fields, into); !e) return e.error();
    ++row_;
    ++documents_;
    return true;
  }

  SourcePosition position() const override { return {0, documents_, 0}; }

  std::string place(const SourcePosition& end) const override {
    return fmt::format("{} {} of {}", is_file_ ? "row" : "document",
                       end.offset - 1, name_);
  }

  Result<void> seek(const SourcePosition& position) override {
    if (position.file != 0 || position.line != 0 ||
        position.offset < documents_) {
      return invalid("data",
                     "a stream goes forward, so a position must be of document "
                     "{} or a later one, found {} for {}",
                     documents_, position.offset, name_);
    }
    while (documents_ < position.offset) {
      auto more = find_row();
      if (!more) return more.error();
      if (!*more) {
        return invalid("data",
                       "a position must come from the same documents, found {} "
                       "for the {} of {}",
                       position.offset, documents_, name_);
      }
      const int64_t n =
          std::min(position.offset - documents_, batch_->length - row_);
      row_ += n;
      documents_ += n;
    }
    return {};
  }

  std::set<std::string> ignored() const override { return ignored_; }

 private:
  template <class Function, class T>
  Result<void> call(Function function, T* out, std::string_view what) {
    const int code = function == nullptr ? -1 : function(stream_.get(), out);
    if (code == 0) return {};
    const char* said = stream_->get_last_error == nullptr
                           ? nullptr
                           : stream_->get_last_error(stream_.get());
    const std::string words = in_quotes(said == nullptr ? "" : said, 1024);
    if (is_file_) {
      return io_error("data", "a file must give {}, found {} for {}", what,
                      words, name_);
    }
    return io_error("data",
                    "an Arrow stream must give {}, found error {} ({}) for {}",
                    what, code, words, name_);
  }

  Result<void> add_column(const ArrowSchema* schema, int64_t child) {
    if (schema == nullptr) {
      return invalid("data",
                     "a schema must be there, found none for column {} "
                     "of {}",
                     child, name_);
    }
    const std::string_view name = schema->name == nullptr ? "" : schema->name;
    const std::optional<Field> field = data::field_called(name);
    if (!field) {
      data::ignore(name, ignored_);
      return {};
    }
    std::optional<Column>& column = columns_[static_cast<size_t>(*field)];
    if (column) {
      return invalid("data",
                     "a column must be there once, found it twice for {} of {}",
                     name, name_);
    }
    auto type = data::read_arrow_type(*schema, *field, name_);
    if (!type) return type.error();
    column = Column{child, std::move(*type)};
    return {};
  }

  // Makes the next row available in the batch; false after the last row.
  Result<bool> find_row() {
    while (!batch_.there() || row_ == batch_->length) {
      if (over_) return false;
      batch_.reset();
      row_ = 0;
      if (auto e = call(stream_->get_next, batch_.get(), batch_words()); !e) {
        return e.error();
      }
      if (!batch_.there()) {
        over_ = true;
        return false;
      }
      if (auto e = check_batch(); !e) return e.error();
      ++batches_;
    }
    return true;
  }

  std::string batch_words() const {
    return is_file_ ? fmt::format("the rows from {} on", documents_)
                    : fmt::format("batch {}", batches_);
  }

  Result<void> check_batch() const {
    const std::string place = fmt::format("{} of {}", batch_words(), name_);
    if (auto e = data::check_arrow_batch(*batch_, children_, place); !e) {
      return e;
    }
    for (size_t f = 0; f < kFields; ++f) {
      if (!columns_[f]) continue;
      auto e = data::check_arrow_array(
          columns_[f]->type, batch_->children[columns_[f]->child],
          fmt::format("column {} of {}", name_of(static_cast<Field>(f)),
                      place));
      if (!e) return e;
    }
    return {};
  }

  Owned<ArrowArrayStream> stream_;  // must outlive the batch
  std::string name_;
  bool is_file_ = false;
  int64_t children_ = 0;
  Columns columns_;
  std::set<std::string> ignored_;
  Owned<ArrowArray> batch_;
  bool over_ = false;
  int64_t batches_ = 0;    // begun so far
  int64_t row_ = 0;        // next row of the batch
  int64_t documents_ = 0;  // passed; in a file, from its beginning
};

}  // namespace

Result<std::unique_ptr<DocumentSource>> data::open_arrow_documents(
    ArrowArrayStream& stream, ArrowOrigin origin) {
  auto source = std::make_unique<ArrowDocuments>(stream, std::move(origin));
  if (auto e = source->open(); !e) return e.error();
  return std::unique_ptr<DocumentSource>(std::move(source));
}

Result<std::unique_ptr<DocumentSource>> open_arrow_stream(
    ArrowArrayStream* stream, std::string name) {
  if (stream == nullptr || stream->release == nullptr) {
    return invalid("data",
                   "an Arrow stream must be there, found a released "
                   "one for {}",
                   name);
  }
  return data::open_arrow_documents(*stream, {std::move(name), false, 0});
}

}  // namespace tessera
