// model/columns.h: which columns of a row a model may embed.
#pragma once

#include <optional>
#include <string_view>

#include "tessera/data.h"

namespace tessera::model {

// The column of that name, if it is optional in rows and has one number per
// token; else nothing.
std::optional<RowColumn> find_column(std::string_view name);

}  // namespace tessera::model
