// receipt/machine.cc: reads /proc.
#include "receipt/machine.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string_view>

namespace tessera {

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
  // x86 has the first line of these, ARM the second.
  constexpr std::string_view kNames[] = {
      "vendor_id",        "cpu family",  "model",    "model name",
      "stepping",         "flags",       "Features", "CPU implementer",
      "CPU architecture", "CPU variant", "CPU part"};
  std::ifstream in("/proc/cpuinfo");
  std::string out;
  // The first core's: a blank line ends it.
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
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("MemAvailable:")) continue;
    const size_t digits = line.find_first_of("0123456789");
    if (digits == std::string::npos) break;
    int64_t kib = 0;
    std::from_chars(line.data() + digits, line.data() + line.size(), kib);
    return kib * 1024;
  }
  return INT64_MAX;
}

}  // namespace tessera
