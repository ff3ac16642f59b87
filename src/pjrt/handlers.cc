// pjrt/handlers.cc: the extension for foreign functions. The header that comes
// with plugins lacks it, so the used part is declared here, with the layout of
// plugins.
#include "pjrt/handlers.h"

#include <cstddef>
#include <cstring>

#include "base/text.h"
#include "pjrt/api.h"

namespace tessera::pjrt {
namespace {

// A plugin that needs more members refuses this struct by its size.
struct HandlerArgs {
  size_t struct_size;
  const char* target;
  size_t target_size;
  void* handler;
  const char* platform;
  size_t platform_size;
  int traits;
};
constexpr size_t kHandlerArgsSize =
    offsetof(HandlerArgs, traits) + sizeof(HandlerArgs::traits);

struct ForeignFunctions {
  PJRT_Extension_Base base;
  void* register_type;
  void* add_user_data;
  PJRT_Error* (*register_handler)(HandlerArgs* args);
};

// A plugin newer than the header has types that the header's list lacks, and
// C++ does not let those be read as the list's own type.
int type_of(const PJRT_Extension_Base& extension) {
  int type = 0;
  static_assert(sizeof(type) == sizeof(extension.type));
  std::memcpy(&type, &extension.type, sizeof(type));
  return type;
}

const ForeignFunctions* extension_of(const PJRT_Api& api) {
  // `extension_start` precedes the version, which every loaded plugin has.
  for (const PJRT_Extension_Base* at = api.extension_start; at != nullptr;
       at = at->next) {
    if (type_of(*at) != PJRT_Extension_Type_FFI) continue;
    const bool whole = at->struct_size >= sizeof(ForeignFunctions);
    return whole ? reinterpret_cast<const ForeignFunctions*>(at) : nullptr;
  }
  return nullptr;
}

}  // namespace

Result<void> register_handler(const Client& client, const std::string& target,
                              void* handler) {
  const Plugin& plugin = client.plugin();
  const ForeignFunctions* const functions = extension_of(*plugin.api());
  if (functions == nullptr || functions->register_handler == nullptr) {
    return unavailable("pjrt",
                       "a plugin must have the extension for foreign functions "
                       "to call ours, found none for {}",
                       in_quotes(plugin.path()));
  }
  HandlerArgs args = {};
  args.struct_size = kHandlerArgsSize;
  args.target = target.data();
  args.target_size = target.size();
  args.handler = handler;
  args.platform = client.platform().data();
  args.platform_size = client.platform().size();
  PJRT_Error* const error = functions->register_handler(&args);
  if (error == nullptr) return {};
  return take_error(*plugin.api(), error, "a plugin must take a handler",
                    plugin.path());
}

}  // namespace tessera::pjrt
