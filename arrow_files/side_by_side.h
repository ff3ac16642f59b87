// arrow_files/side_by_side.h: runs independent parts of work on threads.
#pragma once

#include <arrow/status.h>

#include <cstddef>
#include <functional>

namespace tessera::arrow_files {

// Runs parts 0 to count - 1 on at most `threads` threads, one of which is the
// caller's. The library's thread pool is left to attention, since a call that
// finds it busy runs on one thread. Returns the error, or rethrows the
// exception, of the first part in order that fails. If threads or memory are
// short, fewer threads run all parts.
arrow::Status side_by_side(
    int threads, size_t count,
    const std::function<arrow::Status(size_t part)>& work);

}  // namespace tessera::arrow_files
