// interrupts.h: Ctrl-C during a long call.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>

#include "tessera/attention.h"

namespace tessera::python {

// Lives on the stack of a call that has released the GIL. The lane's progress
// function looks for signals now and then, on the calling thread.
class Interrupts {
 public:
  using Clock = std::chrono::steady_clock;

  Interrupts() : outer_(current()) { current() = this; }
  ~Interrupts() { current() = outer_; }
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  const StopFlag* flag() const { return &flag_; }
  static bool stopped() {
    return current() != nullptr && current()->flag_.stopped();
  }

  // As CpuOptions::progress; it must not throw.
  static void look(double) {
    Interrupts* const call = current();
    if (call == nullptr || call->flag_.stopped()) return;
    const auto now = Clock::now();
    // The first look is the call's begin: most calls are too short for one.
    if (now < call->next_) return;
    const bool first = call->next_ == Clock::time_point();
    call->next_ = now + std::chrono::milliseconds(50);
    if (first) return;
    const nanobind::gil_scoped_acquire held;
    // The exception stays set for the caller.
    if (PyErr_CheckSignals() != 0) call->flag_.stop();
  }

 private:
  static Interrupts*& current() {
    static thread_local Interrupts* call = nullptr;
    return call;
  }

  StopFlag flag_;
  Interrupts* outer_;
  Clock::time_point next_;  // none before the first look
};

// As Stopped of planner and router, of the call that is on this thread's stack.
inline bool look_and_tell() {
  Interrupts::look(0);
  return Interrupts::stopped();
}

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
