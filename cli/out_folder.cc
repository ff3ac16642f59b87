// cli/out_folder.cc: folders made, and taken back.
#include "cli/out_folder.h"

#include <filesystem>

#include "base/fail.h"
#include "base/text.h"

namespace tessera::cli {

namespace fs = std::filesystem;

Result<std::vector<std::string>> make_folder(const std::string& out) {
  std::vector<std::string> made;
  std::error_code error;
  for (fs::path at = fs::absolute(out, error);
       !error && !fs::exists(at, error) && at.has_relative_path();
       at = at.parent_path()) {
    made.push_back(at.string());
  }
  fs::create_directories(out, error);
  if (error || !fs::is_directory(out)) {
    remove_empty(made);
    return io_error("cli", "--out must be a folder, found '{}' for {}",
                    error.message(), in_quotes(out));
  }
  return made;
}

Result<void> check_empty(const std::string& out) {
  std::error_code error;
  if (fs::is_empty(out, error)) return {};
  if (error) {
    return io_error("cli", "--out must be readable, found '{}' for {}",
                    error.message(), in_quotes(out));
  }
  return invalid("cli", "--out must be new or empty, found files in {}",
                 in_quotes(out));
}

void remove_empty(const std::vector<std::string>& folders) {
  std::error_code ignored;
  for (const std::string& folder : folders) fs::remove(folder, ignored);
}

}  // namespace tessera::cli
