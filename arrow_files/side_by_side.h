// arrow_files/side_by_side.h: work in parts that share nothing, by threads.
#pragma once

#include <arrow/status.h>

#include <cstddef>
#include <functional>

namespace tessera::arrow_files {

// Parts 0 to count - 1, by so many threads at most, of which the caller's is
// one. The library's pool is left to attention: what has it makes others run
// alone. The first part in their order that fails tells, or throws what it
// threw. Where threads or memory are short, fewer threads do all parts.
arrow::Status side_by_side(
    int threads, size_t count,
    const std::function<arrow::Status(size_t part)>& work);

}  // namespace tessera::arrow_files
