// data/export_rows.h: packed rows as an Arrow C stream of fixed-size lists.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tessera/data.h"
#include "tessera/documents.h"

namespace tessera::data {

// Streams `first`, then what `next` returns until it returns no row, one batch
// each, without copies. All rows must have one shape and are checked; errors
// call them `name`. An error that stops the stream is left in `error`, which
// must outlive the stream.
void export_rows(Rows first, std::function<Result<Rows>()> next,
                 std::string name, std::optional<Error>& error,
                 ArrowArrayStream* out);
// The same for rows in one batch. Nothing is copied: `rows` must stay unchanged
// until everything from the stream is released.
void export_borrowed_rows(const Rows& rows, std::string name,
                          std::optional<Error>& error, ArrowArrayStream* out);

}  // namespace tessera::data
