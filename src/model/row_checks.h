// model/row_checks.h: which columns a model takes, and whether rows fit it.
#pragma once

#include <string>
#include <vector>

#include "tessera/data.h"
#include "tessera/train.h"

namespace tessera::model {

// A column that a step takes; `name` is that of the program's argument.
struct TakenColumn {
  std::string name;
  RowColumn column;
  int64_t ids = 0;  // numbers are below this; 0: they are not ids
};
std::vector<TakenColumn> columns_of(const ModelConfig& model);

// `first` is the number of the first of the rows, for errors.
Result<void> check_rows_of(const TrainOptions& options,
                           const std::vector<TakenColumn>& columns,
                           const Rows& rows, int64_t first);

}  // namespace tessera::model
