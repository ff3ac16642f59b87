// cli/run/cache_folder.cc: the folder of the cache of compiled programs.
#include "cli/run/cache_folder.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/fail.h"
#include "base/text.h"

namespace tessera::cli {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

Result<std::string> cache_folder(const std::optional<std::string>& flag) {
  std::error_code ignored;  // the cache reports a folder that it cannot read
  if (flag && flag->empty()) {
    return invalid("cli", "--cache must be a folder or off, found ''");
  }
  if (flag && *flag != "off" && std::filesystem::exists(*flag, ignored) &&
      !std::filesystem::is_directory(*flag, ignored)) {
    return invalid("cli",
                   "--cache must be a folder or off, found a file for {}",
                   in_quotes(*flag));
  }
  const std::string said = flag ? *flag : variable("TESSERA_CACHE");
  if (said == "off") return std::string();
  if (!said.empty()) return said;
  for (const auto& [name, below] : {std::pair("XDG_CACHE_HOME", "/tessera"),
                                    std::pair("HOME", "/.cache/tessera")}) {
    const std::string folder = variable(name);
    if (folder.starts_with('/')) return folder + below;
  }
  return std::string();
}

}  // namespace tessera::cli
