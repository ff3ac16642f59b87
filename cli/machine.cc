// cli/machine.cc: CPU times from /proc and getrusage.
#include "cli/machine.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>

namespace tessera::cli {
namespace {

double wall_seconds() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

// CPU time that the whole machine has used; 0 if unknown.
double machine_seconds() {
  std::ifstream in("/proc/stat");
  std::string word;
  // `user` includes guests already; stolen time was not used on this machine.
  double user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, soft = 0;
  if (!(in >> word >> user >> nice >> system >> idle >> wait >> irq >> soft)) {
    return 0;
  }
  return (user + nice + system + irq + soft) /
         static_cast<double>(sysconf(_SC_CLK_TCK));
}

double seconds_of(const timeval& t) {
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
}

double our_seconds() {
  double sum = 0;
  for (const auto who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage = {};
    if (getrusage(who, &usage) != 0) continue;
    sum += seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
  }
  return sum;
}

}  // namespace

std::string slug(std::string_view text) {
  std::string lower;
  for (const char c : text) {
    lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  for (const std::string_view mark : {"(r)", "(tm)"}) {
    for (size_t at = 0; (at = lower.find(mark, at)) != std::string::npos;) {
      lower.erase(at, mark.size());
    }
  }
  std::string out;
  for (const char c : lower) {
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
      out += c;
    } else if (!out.empty() && out.back() != '-') {
      out += '-';
    }
  }
  if (out.ends_with('-')) out.pop_back();
  return out.empty() ? "unknown" : out;
}

OtherCores::OtherCores()
    : wall_(wall_seconds()),
      machine_(machine_seconds()),
      ours_(our_seconds()) {}

double OtherCores::so_far() const {
  const double wall = std::max(wall_seconds() - wall_, 1e-3);
  const double others =
      (machine_seconds() - machine_) - (our_seconds() - ours_);
  return std::max(0.0, others / wall);
}

}  // namespace tessera::cli
