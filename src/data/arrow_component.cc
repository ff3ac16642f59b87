// data/arrow_component.cc: finds and loads the component with Apache Arrow.
#include "data/arrow_component.h"

#include <dlfcn.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "base/fail.h"
#include "base/text.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "tessera_arrow.so";

// Where the component may be: beside the library or program that holds this
// code, or in the library folder of an install.
std::vector<std::string> places() {
  if (const char* named = std::getenv("TESSERA_ARROW");
      named != nullptr && *named != '\0') {
    return {named};
  }
  std::vector<fs::path> files;
  Dl_info about = {};
  if (dladdr(reinterpret_cast<const void*>(&arrow_component), &about) != 0 &&
      about.dli_fname != nullptr) {
    files.emplace_back(about.dli_fname);
  }
  files.emplace_back("/proc/self/exe");
  std::vector<std::string> out;
  const auto add = [&](const fs::path& path) {
    std::string text = path.lexically_normal().string();
    if (std::find(out.begin(), out.end(), text) == out.end()) {
      out.push_back(std::move(text));
    }
  };
  for (const fs::path& file : files) {
    std::error_code error;
    const fs::path real = fs::canonical(file, error);
    if (error || !file.has_parent_path()) continue;
    add(real.parent_path() / kFile);
    add(real.parent_path() / TESSERA_BIN_TO_LIB / kFile);
  }
  return out;
}

Result<const TesseraArrowComponent*> load(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    return io_error("data", "the Arrow component must load, found {} for {}",
                    in_quotes(why != nullptr ? why : "no reason", 300),
                    in_quotes(path));
  }
  auto* const get = reinterpret_cast<decltype(&tessera_arrow_component)>(
      dlsym(library, "tessera_arrow_component"));
  const TesseraArrowComponent* const component =
      get != nullptr ? get() : nullptr;
  if (component != nullptr && component->abi == TESSERA_ARROW_ABI) {
    return component;
  }
  return invalid(
      "data",
      "the Arrow component must be of this version, {}, found {} for {}",
      TESSERA_ARROW_ABI,
      component != nullptr ? std::to_string(component->abi) : "none",
      in_quotes(path));
}

}  // namespace

Result<const TesseraArrowComponent*> arrow_component() {
  static std::mutex mutex;
  static const TesseraArrowComponent* loaded = nullptr;
  const std::lock_guard lock(mutex);
  if (loaded != nullptr) return loaded;
  std::vector<std::string> looked;
  for (const std::string& place : places()) {
    std::error_code error;
    if (!fs::exists(place, error)) {
      looked.push_back(in_quotes(place));
      continue;
    }
    auto component = load(place);
    if (component) loaded = *component;
    return component;
  }
  return unavailable(
      "data",
      "Parquet and Arrow files need the component {} (built where pyarrow {} "
      "is; TESSERA_ARROW may name it; Python may give a pyarrow "
      "RecordBatchReader of the file instead), found no file {}",
      kFile, TESSERA_ARROW_MAJOR, fmt::join(looked, " or "));
}

}  // namespace tessera::data
