// cli/train/rows.h: the rows that a run trains on.
#pragma once

#include <cstdint>
#include <string>

#include "cli/train/settings.h"
#include "data/row_files.h"

namespace tessera::cli {

// Opens the rows and reads all of them, so that no run ends at a row of its
// last step; their digest. The settings then have their tokens, and ceilings of
// shards where none were given.
struct ReadRows {
  data::RowFiles files;
  std::string digest;
};
Result<ReadRows> read_rows(TrainSettings& settings, const TrainFlags& flags);

// Which rows a step takes depends on its number alone.
Result<Rows> rows_of_step(const TrainSettings& settings, data::RowFiles& data,
                          int64_t step);

}  // namespace tessera::cli
