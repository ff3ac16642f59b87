// cli/tessera.h: the program `tessera`.
#pragma once

#include "cli/command.h"

namespace tessera::cli {

Program tessera_program();

}  // namespace tessera::cli
