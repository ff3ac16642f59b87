// cli/progress.h: how far a long run is, on stderr where that is a terminal.
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace tessera::cli {

class Progress {
 public:
  explicit Progress(std::string what);  // "forward"
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Shows the share done, 0 to 1, at most a few times a second and not before
  // the run is long.
  void show(double share);
  // show(), or empty where nobody would see it.
  std::function<void(double)> callback();

 private:
  using Clock = std::chrono::steady_clock;
  std::string what_;
  bool terminal_;
  bool shown_ = false;
  Clock::time_point last_;
};

}  // namespace tessera::cli
