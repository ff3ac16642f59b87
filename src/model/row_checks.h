// model/row_checks.h: which columns of rows a model takes, and whether rows fit
// it.
#pragma once

#include <string>
#include <vector>

#include "tessera/data.h"
#include "tessera/train.h"

namespace tessera::model {

// What a step takes of rows, by the name of the program's argument.
struct TakenColumn {
  std::string name;
  RowColumn column;
  int64_t ids = 0;  // its numbers are below this; 0: they are no ids
};
std::vector<TakenColumn> columns_of(const ModelConfig& model);

// `first` is the number of their first row, for errors.
Result<void> check_rows_of(const TrainOptions& options,
                           const std::vector<TakenColumn>& columns,
                           const Rows& rows, int64_t first);

}  // namespace tessera::model
