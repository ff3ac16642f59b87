// receipt/machine.cc: reads /proc and the limits of the process.
#include "receipt/machine.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>

#include "base/descriptor.h"
#include "base/fail.h"
#include "base/units.h"

namespace tessera::receipt {
namespace {

// The bytes of a line like "MemAvailable:   123 kB" in the first 4 KiB of the
// file; nothing without it. It does not allocate: memory may be exhausted.
std::optional<int64_t> read_kib(const char* path, std::string_view name) {
  char head[4096];
  const Descriptor file(::open(path, O_RDONLY | O_CLOEXEC));
  const ssize_t n = ::read(file.get(), head, sizeof head);
  std::string_view text(head, static_cast<size_t>(std::max<ssize_t>(n, 0)));
  const size_t at = text.find(name);
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at);
  const size_t digits = text.find_first_of("0123456789");
  if (digits == std::string_view::npos) return {};
  int64_t kib = 0;
  std::from_chars(text.data() + digits, text.data() + text.size(), kib);
  return kib * 1024;
}

}  // namespace

std::string cpu_model() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t at = line.find(": ");
    return at == std::string::npos ? line : line.substr(at + 2);
  }
  return "unknown";
}

std::string cpu_identity() {
  // The names up to "flags" are x86's, the others ARM's.
  constexpr std::string_view kNames[] = {
      "vendor_id",        "cpu family",  "model",    "model name",
      "stepping",         "flags",       "Features", "CPU implementer",
      "CPU architecture", "CPU variant", "CPU part"};
  std::ifstream in("/proc/cpuinfo");
  std::string out;
  // Reads the first core only: a blank line ends its entry.
  for (std::string line; std::getline(in, line) && !line.empty();) {
    const std::string_view name =
        std::string_view(line).substr(0, line.find_first_of("\t:"));
    if (std::find(std::begin(kNames), std::end(kNames), name) !=
        std::end(kNames)) {
      out += line + '\n';
    }
  }
  return out;
}

int64_t available_memory() {
  int64_t available =
      read_kib("/proc/meminfo", "MemAvailable:").value_or(INT64_MAX);
  // `ulimit -v` limits address space, so all that is mapped counts as used.
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur < INT64_MAX) {
    const auto most = static_cast<int64_t>(limit.rlim_cur);
    const int64_t used = read_kib("/proc/self/status", "VmSize:").value_or(0);
    available = std::min(available, std::max<int64_t>(0, most - used));
  }
  return available;
}

Result<void> check_free(std::string_view where, double bytes,
                        std::string_view what, double available) {
  if (bytes <= available) return {};
  return over_limit(
      where, "{} must fit the memory that is free, found {} bytes for them",
      what, with_unit(bytes));
}

}  // namespace tessera::receipt
