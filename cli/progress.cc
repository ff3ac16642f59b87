// cli/progress.cc: shows the progress of a long run.
#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace tessera::cli {

Progress::Progress(std::string what)
    : what_(std::move(what)),
      terminal_(isatty(STDERR_FILENO) == 1),
      last_(Clock::now() + std::chrono::milliseconds(500)) {}

Progress::~Progress() {
  if (shown_) std::fputs("\r\033[K", stderr);
}

void Progress::show(double share) {
  const Clock::time_point now = Clock::now();
  if (!terminal_ || now < last_ + std::chrono::milliseconds(200)) return;
  last_ = now;
  shown_ = true;
  std::fputs(fmt::format("\r{}: {:.0f} %\033[K", what_, 100 * share).c_str(),
             stderr);
  std::fflush(stderr);
}

std::function<void(double)> Progress::callback() {
  if (!terminal_) return {};
  return [this](double share) { show(share); };
}

std::function<void(int64_t, int64_t)> Progress::counter() {
  if (!terminal_) return {};
  return [this](int64_t done, int64_t of) {
    show(static_cast<double>(done) / static_cast<double>(of));
  };
}

}  // namespace tessera::cli
