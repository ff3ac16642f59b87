// tests/full_disk.h: makes writes of this process fail as on a full disk.
#pragma once

#include <sys/resource.h>

#include <csignal>

namespace tessera::testing {

// While the object lives, a write beyond `bytes` of a file fails.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
    const rlimit small = {bytes, old_.rlim_max};
    holds_ = ::setrlimit(RLIMIT_FSIZE, &small) == 0;
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    ::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

  bool holds() const { return holds_; }

 private:
  rlimit old_ = {};
  void (*handler_)(int) = nullptr;
  bool holds_ = false;
};

}  // namespace tessera::testing
