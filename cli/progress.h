// cli/progress.h: shows the progress of a long run on stderr, if it is a
// terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace tessera::cli {

class Progress {
 public:
  explicit Progress(std::string what);  // "forward"
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Shows the share that is done, 0 to 1: at most a few times a second, and
  // only once the run has taken some time.
  void show(double share);
  // Calls show(); empty if stderr is no terminal.
  std::function<void(double)> callback();
  // The same for work that counts what is done of how many.
  std::function<void(int64_t done, int64_t of)> counter();

 private:
  using Clock = std::chrono::steady_clock;
  std::string what_;
  bool terminal_;
  bool shown_ = false;
  Clock::time_point last_;
};

}  // namespace tessera::cli
