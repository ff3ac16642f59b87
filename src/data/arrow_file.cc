// data/arrow_file.cc: a Parquet or Arrow IPC file as a stream of its documents.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <vector>

#include "base/descriptor.h"
#include "base/fail.h"
#include "base/text.h"
#include "data/arrow_component.h"
#include "data/arrow_documents.h"
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

// Which columns of the file are fields of documents. One that is there twice
// stays so: the stream is refused for it.
Result<std::vector<int>> wanted_columns(const TesseraArrowComponent& component,
                                        const std::string& path,
                                        std::set<std::string>& ignored) {
  ArrowSchema schema = {};
  TesseraArrowWhy why = {};
  if (component.schema(path.c_str(), &schema, &why) != 0) {
    return unread("its columns", why, path);
  }
  std::vector<int> wanted;
  bool has_tokens = false;
  for (int64_t c = 0; c < schema.n_children; ++c) {
    const char* const name = schema.children[c]->name;
    const auto field = field_called(name == nullptr ? "" : name);
    has_tokens |= field == Field::input_ids;
    if (field) {
      wanted.push_back(static_cast<int>(c));
    } else {
      ignore(name == nullptr ? "" : name, ignored);
    }
  }
  schema.release(&schema);
  if (has_tokens) return wanted;
  return invalid("data",
                 "documents must have the column input_ids, found none for {}",
                 in_quotes(path));
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

Result<std::unique_ptr<DocumentSource>> open_arrow_file(
    const std::string& path, int64_t first_row, int64_t workers,
    std::set<std::string>& ignored) {
  auto component = arrow_component();
  if (!component) return component.error();
  if (auto e = check_file(path); !e) return e.error();
  auto columns = wanted_columns(**component, path, ignored);
  if (!columns) return columns.error();
  ArrowArrayStream stream = {};
  TesseraArrowWhy why = {};
  if ((*component)
          ->read(path.c_str(), columns->data(),
                 static_cast<int>(columns->size()), first_row,
                 static_cast<int>(workers), &stream, &why) != 0) {
    return unread("its rows", why, path);
  }
  return open_arrow_documents(stream, {in_quotes(path), true, first_row});
}

}  // namespace tessera::data
