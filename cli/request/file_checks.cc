// cli/request/file_checks.cc: compares files by identity, not by name.
#include "cli/request/file_checks.h"

#include <algorithm>
#include <filesystem>

#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "request/documents.h"
#include "request/given_picks.h"
#include "request/numbers.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

// The path with links resolved; unchanged if that fails.
fs::path real_path(const fs::path& path) {
  std::error_code unknown;
  const fs::path whole = fs::absolute(path, unknown);
  if (unknown) return path;
  fs::path out = fs::weakly_canonical(whole, unknown);
  return unknown ? path : out;
}

bool lies_in(const fs::path& file, const fs::path& folder) {
  fs::path whole = real_path(folder);
  if (!whole.has_filename()) whole = whole.parent_path();  // a trailing /
  std::error_code unknown;
  const fs::path name = fs::absolute(file, unknown);
  for (const fs::path& at :
       {real_path(name.parent_path()), real_path(name).parent_path()}) {
    const auto ends =
        std::mismatch(whole.begin(), whole.end(), at.begin(), at.end());
    if (ends.first == whole.end()) return true;
  }
  return false;
}

}  // namespace

bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code unknown;
  if (fs::exists(a, unknown) && fs::exists(b, unknown)) {
    return fs::is_regular_file(a, unknown) && fs::equivalent(a, b, unknown);
  }
  return real_path(a) == real_path(b);
}

std::vector<std::string> given_files(
    std::initializer_list<const std::optional<std::string>*> flags) {
  std::vector<std::string> out;
  for (const auto* flag : flags) {
    if (*flag) out.push_back(**flag);
  }
  return out;
}

std::vector<std::string> request_files(const request::RequestFlags& f) {
  std::vector<std::string> out = given_files({&f.spec, &f.plan});
  for (const receipt::RequestField& field : receipt::request_fields()) {
    if (field.group != std::string_view(receipt::kFactsGroup)) continue;
    for (const std::string& text : field.texts(f)) {
      // --same has NAME=SOURCE with a name of one letter.
      const size_t skip = field.name == "same" && text.size() > 2 ? 2 : 0;
      std::string_view file =
          request::document_file(std::string_view(text).substr(skip));
      request::take_prefix(file, request::kTopkSource);
      out.emplace_back(file);
    }
  }
  return out;
}

Result<void> check_files(std::vector<std::string> read,
                         const std::vector<std::string>& written) {
  for (const std::string& path : written) {
    if (auto e = check_output(path); !e) return e;
    for (const std::string& other : read) {
      if (!is_same_file(path, other)) continue;
      return invalid(
          "cli", "each file must have a name of its own, found {} {}",
          in_quotes(path),
          path == other ? "twice" : fmt::format("for {}", in_quotes(other)));
    }
    read.push_back(path);
  }
  return {};
}

Result<void> check_ending(const NamedPath& file, std::string_view ending) {
  if (file.path.ends_with(ending)) return {};
  return invalid("cli", "{} must end in {}, found {}", file.flag, ending,
                 in_quotes(file.path));
}

Result<void> check_outside(const NamedPath& file, const NamedPath& folder) {
  if (!lies_in(file.path, folder.path)) return {};
  return invalid("cli", "{} must lie outside of {}, found {}", file.flag,
                 folder.flag, in_quotes(file.path));
}

}  // namespace tessera::cli
