// unlocked.h: runs work of the library without the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

namespace tessera::python {

// `work` must touch no Python object.
template <class Work>
auto unlocked(Work&& work) {
  const nanobind::gil_scoped_release released;
  return std::forward<Work>(work)();
}

// The same for work on this many numbers, if it takes 10 us or more. Shorter
// work keeps the GIL, because taking it again can mean waiting for another
// thread.
template <class Work>
auto unlocked_if_long(size_t numbers, Work&& work) {
  constexpr size_t kLong = size_t{1} << 16;
  std::optional<nanobind::gil_scoped_release> released;
  if (numbers >= kLong) released.emplace();
  return std::forward<Work>(work)();
}

// A copy of `text`. Nobody else has the bytes yet, so they are filled without
// the GIL.
inline nanobind::bytes bytes_of(std::string_view text) {
  auto out = nanobind::steal<nanobind::bytes>(
      PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(text.size())));
  if (!out.is_valid()) throw nanobind::python_error();
  char* const to = PyBytes_AsString(out.ptr());
  unlocked_if_long(text.size(), [&] { std::ranges::copy(text, to); });
  return out;
}

}  // namespace tessera::python
