// data/arrow_file.cc: opens columns of a Parquet or Arrow IPC file, and the
// documents of such a file.
#include <algorithm>
#include <array>
#include <vector>

#include "base/fail.h"
#include "base/text.h"
#include "data/arrow_component.h"
#include "data/arrow_documents.h"
#include "data/arrow_owned.h"
#include "data/arrow_type.h"
#include "data/document_fields.h"
#include "data/input_files.h"

namespace tessera::data {
namespace {

constexpr std::array<std::string_view, 5> kEndings = {
    ".parquet", ".arrow", ".arrows", ".feather", ".ipc"};

Error unread(std::string_view what, const TesseraArrowWhy& why,
             const std::string& path) {
  return io_error("data", "a file must give {}, found {} for {}", what,
                  in_quotes(why.text, sizeof(why.text)), in_quotes(path));
}

// The numbers of the wanted columns.
Result<std::vector<int>> choose_columns(
    const TesseraArrowComponent& component, const std::string& path,
    std::string_view what,
    const std::function<bool(std::string_view)>& wanted) {
  Owned<ArrowSchema> schema;
  TesseraArrowWhy why = {};
  if (component.schema(path.c_str(), schema.get(), &why) != 0) {
    return unread("its columns", why, path);
  }
  std::vector<int> out;
  bool has_tokens = false;
  for (int64_t c = 0; c < schema->n_children; ++c) {
    const char* const given = schema->children[c]->name;
    const std::string_view name = given == nullptr ? "" : given;
    has_tokens |= name == name_of(Field::input_ids);
    if (wanted(name)) out.push_back(static_cast<int>(c));
  }
  if (has_tokens) return out;
  return invalid("data", "{} must have the column input_ids, found none for {}",
                 what, in_quotes(path));
}

}  // namespace

std::string ending_of(std::string_view path) {
  std::string ending(path.substr(std::min(path.rfind('.'), path.size())));
  for (char& c : ending)
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return ending;
}

bool is_arrow_file(std::string_view path) {
  return std::ranges::find(kEndings, ending_of(path)) != kEndings.end();
}

Result<ArrowArrayStream> open_arrow_columns(
    const std::string& path, int64_t first_row, int64_t workers,
    std::string_view what,
    const std::function<bool(std::string_view)>& wanted) {
  auto component = arrow_component();
  if (!component) return component.error();
  if (auto e = check_file(path, what); !e) return e.error();
  auto columns = choose_columns(**component, path, what, wanted);
  if (!columns) return columns.error();
  ArrowArrayStream stream = {};
  TesseraArrowWhy why = {};
  if ((*component)
          ->read(path.c_str(), columns->data(),
                 static_cast<int>(columns->size()), first_row,
                 static_cast<int>(workers), &stream, &why) != 0) {
    return unread("its rows", why, path);
  }
  return stream;
}

Result<void> refuse_row_columns(const std::string& path) {
  auto component = arrow_component();
  Owned<ArrowSchema> schema;
  TesseraArrowWhy why = {};
  if (!component || (*component)->schema(path.c_str(), schema.get(), &why) != 0)
    return {};
  return refuse_rows(
      [&](std::string_view name) { return has_column(*schema, name); },
      in_quotes(path));
}

Result<std::unique_ptr<DocumentSource>> open_arrow_file(
    const std::string& path, int64_t first_row, int64_t workers,
    std::set<std::string>& ignored) {
  auto stream = open_arrow_columns(path, first_row, workers, "documents",
                                   [&](std::string_view name) {
                                     if (field_called(name)) return true;
                                     ignore(name, ignored);
                                     return false;
                                   });
  if (!stream) return stream.error();
  return open_arrow_documents(*stream, {in_quotes(path), true, first_row});
}

}  // namespace tessera::data
