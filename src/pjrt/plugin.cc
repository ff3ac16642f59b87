// pjrt/plugin.cc: dlopen, the checks of the API it returns, the list of loaded
// plugins.
#include "pjrt/plugin.h"

#include <dlfcn.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>

#include "base/text.h"
#include "base/trace.h"
#include "pjrt/api.h"
#include "pjrt/elf.h"
#include "pjrt/environment.h"
#include "pjrt/locate.h"
#include "pjrt/vendor_error.h"

namespace tessera::pjrt {
namespace {

using GetApi = const PJRT_Api*();
using Loaded = Result<std::unique_ptr<Plugin>>;

Error not_ours(const std::string& path, std::string_view found) {
  return invalid("pjrt",
                 "a plugin must have the PJRT C API {}.x, found {} for {}",
                 PJRT_API_MAJOR, found, in_quotes(path));
}

Loaded load(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* why = dlerror();
    return io_error("pjrt", "a plugin must load, found {} for {}",
                    in_quotes(why ? why : "no reason", 300), in_quotes(path));
  }
  auto* get_api = reinterpret_cast<GetApi*>(dlsym(library, "GetPjrtApi"));
  if (!get_api) return not_ours(path, "no function GetPjrtApi");
  const PJRT_Api* api = get_api();
  if (!api) return not_ours(path, "that GetPjrtApi gives none");
  if (!reaches(*api, &PJRT_Api::pjrt_api_version)) {
    return not_ours(path, "a struct too small for a version");
  }
  const PJRT_Api_Version& version = api->pjrt_api_version;
  if (version.major_version != PJRT_API_MAJOR) {
    return not_ours(path, fmt::format("{}.{}", version.major_version,
                                      version.minor_version));
  }
  if (!function_of(*api, &PJRT_Api::PJRT_Error_Destroy) ||
      !function_of(*api, &PJRT_Api::PJRT_Error_Message) ||
      !function_of(*api, &PJRT_Api::PJRT_Error_GetCode)) {
    return not_ours(path, "a struct without the functions of errors");
  }
  auto plugin = std::make_unique<Plugin>(path, api, version.minor_version);
  PJRT_Plugin_Initialize_Args args = {};
  auto ok = TESSERA_PJRT_CALL(*plugin, PJRT_Plugin_Initialize, args,
                              Purpose{"a plugin must initialize", path});
  if (!ok) return ok.error();
  return plugin;
}

}  // namespace

Error take_error(const PJRT_Api& api, PJRT_Error* error, std::string_view rule,
                 std::string_view subject) {
  PJRT_Error_Message_Args message = {};
  message.struct_size = PJRT_Error_Message_Args_STRUCT_SIZE;
  message.error = error;
  api.PJRT_Error_Message(&message);
  PJRT_Error_GetCode_Args code = {};
  code.struct_size = PJRT_Error_GetCode_Args_STRUCT_SIZE;
  code.error = error;
  code.code = PJRT_Error_Code_UNKNOWN;
  PJRT_Error* nested = api.PJRT_Error_GetCode(&code);
  Error ours = vendor_error(
      rule, static_cast<int>(code.code),
      message.message ? std::string_view(message.message, message.message_size)
                      : std::string_view(),
      subject);
  for (PJRT_Error* each : {error, nested}) {
    if (!each) continue;
    PJRT_Error_Destroy_Args destroy = {};
    destroy.struct_size = PJRT_Error_Destroy_Args_STRUCT_SIZE;
    destroy.error = each;
    api.PJRT_Error_Destroy(&destroy);
  }
  return ours;
}

Result<void> check_available() { return {}; }

Result<const Plugin*> load_plugin(const std::string& path) {
  TraceSpan span("pjrt", "load_plugin");
  span.note("path", path);
  if (auto ok = check_library(path); !ok) return ok.error();
  char* real = realpath(path.c_str(), nullptr);
  const std::string key = real ? real : path;
  std::free(real);
  // A plugin stays loaded and is not initialized again, even if its
  // initialization failed. Never destroyed, because threads may outlive main().
  static std::mutex mutex;
  static auto& loaded = *new std::map<std::string, Loaded>;
  const std::lock_guard lock(mutex);
  auto at = loaded.find(key);
  if (at == loaded.end()) at = loaded.emplace(key, load(key)).first;
  if (!at->second) return at->second.error();
  return at->second->get();
}

Result<const Plugin*> open_plugin(const PluginOptions& options) {
  auto environment = tpu_environment(options.dump_folder);
  if (!environment) return environment.error();
  auto path = find_plugin(options.plugin);
  if (!path) return path.error();
  set_missing(*environment);
  return load_plugin(*path);
}

}  // namespace tessera::pjrt
