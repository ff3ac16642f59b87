// interrupts.h: Ctrl-C during a long call.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>

#include "tessera/attention.h"

namespace tessera::python {

// Lives on the stack of a call that has released the GIL. When the calling
// thread reads the stop flag, it also checks for signals, every 50 ms.
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
  // Whether the call on this thread's stack has to stop.
  static bool stopped() {
    return current() != nullptr && current()->flag_.stopped();
  }

 private:
  // Checks for signals; does nothing on threads that are not the calling one.
  static bool look() {
    Interrupts* const call = current();
    if (call == nullptr) return false;
    const auto now = Clock::now();
    // The first look only starts the clock: most calls end before 50 ms.
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

// Runs `work(stop flag)` without the GIL, and rethrows the Python exception of
// a signal handler.
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
