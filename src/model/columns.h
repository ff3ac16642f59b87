// model/columns.h: which columns of a row a model may embed.
#pragma once

#include <optional>
#include <string_view>

#include "tessera/data.h"

namespace tessera::model {

// The optional column of that name with one number per token, or nothing.
std::optional<RowColumn> find_column(std::string_view name);

}  // namespace tessera::model
