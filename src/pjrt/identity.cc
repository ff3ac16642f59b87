// pjrt/identity.cc: reads facts of the file, the environment and the machine.
#include "pjrt/identity.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>

#include "base/descriptor.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/threads.h"
#include "pjrt/elf.h"
#include "receipt/machine.h"

namespace tessera::pjrt {
namespace {

// Variables that change what XLA and libtpu compile.
constexpr const char* kVariables[] = {"XLA_FLAGS", "LIBTPU_INIT_ARGS"};

}  // namespace

Result<std::string> file_identity(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) {
    return io_error("cache",
                    "a plugin's file must be readable, found \"{}\" "
                    "for {}",
                    reason(errno), in_quotes(path));
  }
  const std::string id = build_id(file.get());
  if (!id.empty()) return fmt::format("build {} size {}", id, status.st_size);
  // All files of a package may have the same modification time. The change time
  // is set by the system; the inode tells files of the same tick apart.
  return fmt::format(
      "size {} modified {}.{:09} changed {}.{:09} inode {} of {}",
      status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec,
      status.st_ctim.tv_sec, status.st_ctim.tv_nsec, status.st_ino,
      status.st_dev);
}

Result<std::string> identity_of(const Client& client, const Devices& devices) {
  const Plugin& plugin = client.plugin();
  auto file = file_identity(plugin.path());
  if (!file) return file.error();
  // One line per fact. Untrusted text is quoted, so that it cannot look like
  // two lines.
  std::string out = fmt::format(
      "plugin {}\napi minor {}\nplatform {}\nversion {}\ndevice {} of {}, id "
      "{}\n",
      *file, plugin.minor_version(), in_quotes(client.platform(), SIZE_MAX),
      in_quotes(client.platform_version(), SIZE_MAX),
      in_quotes(devices.front().kind, SIZE_MAX), client.devices().size(),
      fmt::join(devices.ids(), ", "));
  for (const char* name : kVariables) {
    const char* value = std::getenv(name);
    out += fmt::format("{} {}\n", name,
                       value ? in_quotes(value, SIZE_MAX) : "unset");
  }
  if (client.platform() == "cpu") {
    const std::string cpu = receipt::cpu_identity();
    if (cpu.empty()) {
      return unavailable("cache",
                         "programs for this CPU must be kept under its model, "
                         "found none in /proc/cpuinfo");
    }
    out += fmt::format("cores {}\n{}", machine_threads(), cpu);
  }
  return out;
}

}  // namespace tessera::pjrt
