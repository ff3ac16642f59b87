// base/no_signals.h: blocks all signals in threads that start while a NoSignals
// lives, since signals are for the host's threads.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace tessera {

class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace tessera
