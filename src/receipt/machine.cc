// receipt/machine.cc: reads /proc.
#include "receipt/machine.h"

#include <charconv>
#include <fstream>

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
