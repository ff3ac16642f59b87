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
  Interrupts() : outer_(current()) { current() = this; }
  ~Interrupts() { current() = outer_; }
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  const StopFlag* flag() const { return &flag_; }

  // As CpuOptions::progress; it must not throw.
  static void look(double) {
    Interrupts* const call = current();
    if (call == nullptr || call->flag_.stopped()) return;
    const auto now = std::chrono::steady_clock::now();
    if (now < call->next_) return;
    call->next_ = now + std::chrono::milliseconds(50);
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
  std::chrono::steady_clock::time_point next_ =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
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
