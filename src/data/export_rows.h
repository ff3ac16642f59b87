// data/export_rows.h: packed rows as an Arrow C stream, a column of lists of a
// fixed size a column.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tessera/data.h"
#include "tessera/documents.h"

namespace tessera::data {

// `first`, then what `next` gives until it gives no row: a batch each, whose
// memory is the rows' own. All are of one shape and are checked; `name` is how
// errors call them. What stops it is left in `error`, which lives as long as
// the stream.
void export_rows(Rows first, std::function<Result<Rows>()> next,
                 std::string name, std::optional<Error>& error,
                 ArrowArrayStream* out);
// The same of rows that are all, in one batch. Nothing is copied: they stay
// where they are until all that the stream gave is released.
void export_borrowed_rows(const Rows& rows, std::string name,
                          std::optional<Error>& error, ArrowArrayStream* out);

}  // namespace tessera::data
