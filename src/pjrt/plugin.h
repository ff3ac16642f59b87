// pjrt/plugin.h: loads a PJRT plugin once per process, and keeps it.
//
// A plugin is code in our own process: if it crashes or exits, the process
// ends, and nothing here can prevent that. It is never unloaded, because
// plugins start threads that go on running.
#pragma once

#include <string>

#include "tessera/result.h"

struct PJRT_Api;

namespace tessera::pjrt {

class Plugin {
 public:
  Plugin(std::string path, const PJRT_Api* api, int minor)
      : path_(std::move(path)), api_(api), minor_(minor) {}
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  const std::string& path() const { return path_; }  // with links resolved
  int minor_version() const { return minor_; }  // the major one equals ours

  // Functions are reached through pjrt/api.h only.
  const PJRT_Api* api() const { return api_; }

 private:
  std::string path_;
  const PJRT_Api* api_;
  int minor_;
};

struct PluginOptions {
  std::string plugin = "libtpu";  // a path or a name (pjrt/locate.h)
  std::string dump_folder;        // for libtpu; empty: no dumps
};

// Success if this build can load plugins; else the error says why not.
Result<void> check_available();

// Checks the file, loads and initializes it. The same file again gives the same
// plugin, which lives as long as the process. Safe from any thread.
Result<const Plugin*> load_plugin(const std::string& path);

// Sets the variables of libtpu that are not set (pjrt/environment.h), then
// finds and loads the plugin. Only the dump folder of the first load counts.
Result<const Plugin*> open_plugin(const PluginOptions& options);

}  // namespace tessera::pjrt
