// interrupts.h: Ctrl-C during a long call.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>

#include "tessera/attention.h"

namespace tessera::python {

// Lives on the stack of a call that has released the GIL. Whoever looks at its
// stop flag on the calling thread looks for signals too, now and then.
class Interrupts {
 public:
  using Clock = std::chrono::steady_clock;

  Interrupts() : flag_(&Interrupts::look), outer_(current()) {
    current() = this;
  }
  ~Interrupts() { current() = outer_; }
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  const StopFlag* flag() const { return &flag_; }
  // Whether the call on this thread's stack is to end.
  static bool stopped() {
    return current() != nullptr && current()->flag_.stopped();
  }

 private:
  // On other threads there is no call to ask for.
  static bool look() {
    Interrupts* const call = current();
    if (call == nullptr) return false;
    const auto now = Clock::now();
    // The first look is the call's begin: most calls are too short for one.
    if (now < call->next_) return false;
    const bool first = call->next_ == Clock::time_point();
    call->next_ = now + std::chrono::milliseconds(50);
    if (first) return false;
    const nanobind::gil_scoped_acquire held;
    // The exception stays set for the caller.
    if (PyErr_CheckSignals() == 0) return false;
    call->flag_.stop();
    return true;
  }

  static Interrupts*& current() {
    static thread_local Interrupts* call = nullptr;
    return call;
  }

  StopFlag flag_;
  Interrupts* outer_;
  Clock::time_point next_;  // none before the first look
};

// Runs `work(stop flag)` without the GIL; a Python exception that a signal's
// handler raised goes on from here.
template <class Work>
auto without_gil(Work&& work) {
  auto result = [&] {
    const nanobind::gil_scoped_release released;
    const Interrupts interrupts;
    return work(interrupts.flag());
  }();
  if (PyErr_Occurred() != nullptr) throw nanobind::python_error();
  return result;
}

}  // namespace tessera::python
