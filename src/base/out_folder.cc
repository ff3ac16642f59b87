// base/out_folder.cc: makes folders, and removes them again.
#include "base/out_folder.h"

#include <filesystem>
#include <system_error>

#include "base/fail.h"
#include "base/text.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// The folders of the path that do not exist yet. A dangling link counts as
// existing.
std::vector<std::string> missing_folders(const std::string& folder) {
  std::vector<std::string> out;
  std::error_code error, unknown;
  for (fs::path at = fs::absolute(folder, error);
       !error && !fs::exists(fs::symlink_status(at, unknown)) &&
       at.has_relative_path();
       at = at.parent_path()) {
    out.push_back(at.string());
  }
  return out;
}

void remove_empty(const std::vector<std::string>& folders) {
  std::error_code ignored;
  for (const std::string& folder : folders) fs::remove(folder, ignored);
}

}  // namespace

bool leads_to_nothing(const std::string& path) {
  std::error_code error, unknown;
  for (fs::path at = fs::absolute(path, error);
       !error && !fs::exists(at, unknown) && at.has_relative_path();
       at = at.parent_path()) {
    if (fs::is_symlink(fs::symlink_status(at, unknown))) return true;
  }
  return false;
}

Result<std::vector<std::string>> make_out_folder(const OutFolderUse& use,
                                                 const std::string& folder) {
  std::vector<std::string> made = missing_folders(folder);
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error && !fs::is_directory(folder, error) && !error) {
    error = std::make_error_code(std::errc::not_a_directory);
  }
  const bool empty = !error && fs::is_empty(folder, error);
  if (error) {
    remove_empty(made);
    return io_error(
        use.where, "{} must be one that can be made and read, found {} for {}",
        use.what,
        leads_to_nothing(folder) ? "a link to nothing"
                                 : fmt::format("\"{}\"", error.message()),
        in_quotes(folder));
  }
  if (empty) return made;
  return invalid(use.where, "{} must be new or empty, found files in {}",
                 use.what, in_quotes(folder));
}

Result<void> write_out_folder(const OutFolderUse& use,
                              const std::string& folder,
                              const std::function<Result<void>()>& write) {
  auto made = make_out_folder(use, folder);
  if (!made) return made.error();
  auto e = write();
  if (!e) remove_empty(*made);
  return e;
}

}  // namespace tessera
