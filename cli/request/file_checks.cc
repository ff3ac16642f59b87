// cli/request/file_checks.cc: files are compared by what they are.
#include "cli/request/file_checks.h"

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

// A device or a pipe may be read and written.
bool is_same(const std::string& a, const std::string& b) {
  std::error_code unknown;
  if (fs::exists(a, unknown) && fs::exists(b, unknown)) {
    return fs::is_regular_file(a, unknown) && fs::equivalent(a, b, unknown);
  }
  const auto whole = [&](const std::string& path) {
    const fs::path from_root = fs::absolute(path, unknown);
    return unknown ? from_root : fs::weakly_canonical(from_root, unknown);
  };
  const fs::path left = whole(a);
  if (unknown) return a == b;
  const fs::path right = whole(b);
  return unknown ? a == b : left == right;
}

}  // namespace

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
      // NAME=SOURCE
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
      if (!is_same(path, other)) continue;
      return invalid(
          "cli", "each file must have a name of its own, found {} {}",
          in_quotes(path),
          path == other ? "twice" : fmt::format("for {}", in_quotes(other)));
    }
    read.push_back(path);
  }
  return {};
}

}  // namespace tessera::cli
