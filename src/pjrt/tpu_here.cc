// pjrt/tpu_here.cc: looks for the device files of TPUs.
#include "pjrt/tpu_here.h"

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace tessera::pjrt {
namespace {

namespace fs = std::filesystem;

// Whether a folder has an entry whose name starts with `start`.
bool has_entry(const char* folder, std::string_view start) {
  std::error_code e;
  for (fs::directory_iterator at(folder, e), end; !e && at != end;
       at.increment(e)) {
    if (at->path().filename().string().starts_with(start)) return true;
  }
  return false;
}

}  // namespace

bool is_tpu_here() {
  if (has_entry("/dev", "accel")) return true;
  std::error_code e;
  for (fs::directory_iterator at("/dev/vfio", e), end; !e && at != end;
       at.increment(e)) {
    const std::string name = at->path().filename().string();
    if (name.find_first_not_of("0123456789") == std::string::npos) return true;
  }
  return false;
}

}  // namespace tessera::pjrt
