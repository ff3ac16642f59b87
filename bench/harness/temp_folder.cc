// bench/harness/temp_folder.cc: mkdtemp makes the folder; the destructor
// removes it with all its files.
#include "bench/harness/temp_folder.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/fail.h"
#include "base/text.h"

namespace tessera::bench {

TempFolder::~TempFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

Result<void> TempFolder::make() {
  std::string name =
      (std::filesystem::temp_directory_path() / "tessera-bench-XXXXXX")
          .string();
  if (!mkdtemp(name.data())) {
    return io_error("bench", "a temporary folder must open, found {} not",
                    in_quotes(name));
  }
  path_ = name;
  return {};
}

std::string TempFolder::file(const std::string& name) const {
  return (std::filesystem::path(path_) / name).string();
}

}  // namespace tessera::bench
