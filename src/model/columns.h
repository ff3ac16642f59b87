// model/columns.h: which columns of a row a model may embed.
#pragma once

#include <optional>
#include <string_view>

#include "tessera/data.h"

namespace tessera::model {

// One that is no part of every row, with a number a token.
std::optional<RowColumn> find_column(std::string_view name);

}  // namespace tessera::model
