// pjrt/environment.cc: sets libtpu's environment without overriding the user's,
// and the threads of a CPU client, where the user's number may be too small.
#include "pjrt/environment.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "base/fail.h"
#include "base/text.h"
#include "base/threads.h"

namespace tessera::pjrt {
namespace {

constexpr const char* kThreads = "NPROC";
constexpr std::string_view kFlags = "LIBTPU_INIT_ARGS";
constexpr std::string_view kDumpTo = "--xla_jf_dump_to=";
// Follows the folder's name. Every op in a dump names the line of its kernel;
// the code stays the same. Only the stages that are read are dumped: all
// seventy take longer to write than the compile.
constexpr std::string_view kDumps =
    " --xla_jf_dump_llo_text=true"
    " --xla_mosaic_enable_llo_source_annotations=true"
    " --xla_jf_dump_llo_pass_label_regex="
    "^(final_(bundles|hlo-static-per-bundle-utilization)|packed-bundles-post-"
    "ra)"
    "$";

// The flags without those that an earlier call put first, for any folder.
std::string users_flags(std::string_view flags) {
  const size_t at = flags.find(' ');
  if (flags.starts_with(kDumpTo) && at != std::string_view::npos &&
      flags.substr(at).starts_with(kDumps)) {
    flags.remove_prefix(std::min(at + kDumps.size() + 1, flags.size()));
  }
  return std::string(flags);
}

// The value of NPROC; 0 if it is no number, as XLA reads it.
int64_t users_threads() {
  int64_t out = 0;
  if (const char* users = std::getenv(kThreads)) {
    const std::string_view text = users;
    std::from_chars(text.data(), text.data() + text.size(), out);
  }
  return out;
}

}  // namespace

Result<Variables> tpu_environment(const std::string& dump_folder) {
  Variables out = {
      {"TPU_SKIP_MDS_QUERY", "1"},
      // Any known type: the topology of a compile is what counts.
      {"TPU_ACCELERATOR_TYPE", "v6e-4"},
      {"TPU_WORKER_HOSTNAMES", "localhost"},
      {"ALLOW_MULTIPLE_LIBTPU_LOAD", "true"},
      {"TPU_LOG_DIR", "disabled"},
      {"TPU_MIN_LOG_LEVEL", "3"},
      {"TPU_STDERR_LOG_LEVEL", "3"},
  };
  if (dump_folder.empty()) return out;
  if (dump_folder.find_first_of(" \t\r\n'\"\\") != std::string::npos) {
    return invalid("pjrt",
                   "a dump folder must have no white space, quote or backslash "
                   "in its name, found {}",
                   in_quotes(dump_folder));
  }
  std::error_code ignored;
  if (!std::filesystem::is_directory(dump_folder, ignored)) {
    return io_error("pjrt", "a dump folder must exist, found none for {}",
                    in_quotes(dump_folder));
  }
  out.emplace_back(kFlags,
                   std::string(kDumpTo) + dump_folder + std::string(kDumps));
  return out;
}

void set_missing(const Variables& variables) {
  for (const auto& [name, value] : variables) {
    const char* now = std::getenv(name.c_str());
    if (now && name == kFlags) {
      const std::string users = users_flags(now);
      const std::string joined = users.empty() ? value : value + " " + users;
      if (joined != now) setenv(name.c_str(), joined.c_str(), 1);
    } else {
      setenv(name.c_str(), value.c_str(), 0);
    }
  }
}

void raise_threads(int64_t devices) {
  if (devices < 2) return;
  const int64_t least = devices + machine_threads();
  if (users_threads() < least) {
    setenv(kThreads, std::to_string(least).c_str(), 1);
  }
}

int64_t threads_now() {
  const int64_t users = users_threads();
  return users > 0 ? users : machine_threads();
}

}  // namespace tessera::pjrt
