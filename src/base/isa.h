// base/isa.h: which instruction set a call runs on.
#pragma once

#include <optional>
#include <span>

#include "tessera/machine.h"

namespace tessera {

// The forced ISA; else TESSERA_ISA from the environment, if set and not empty;
// else the best of this machine. An unknown ISA, or one that the machine lacks,
// is an error.
Result<Isa> choose_isa(std::optional<Isa> forced);

// The same for a given machine: `there` holds its ISAs in ascending order, as
// machine_isas() gives them; `environment` is the variable's value or null.
Result<Isa> choose_isa(std::optional<Isa> forced, const char* environment,
                       std::span<const Isa> there);

}  // namespace tessera
