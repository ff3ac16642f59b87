// base/isa.h: which instruction set a call runs on.
#pragma once

#include <optional>
#include <span>

#include "tessera/machine.h"

namespace tessera {

// The forced one; else TESSERA_ISA from the environment, where set and not
// empty; else the best of this machine. One that is absent or unknown is an
// error.
Result<Isa> choose_isa(std::optional<Isa> forced);

// The same for any machine: `there` in ascending order, as machine_isas()
// gives them, and the environment's text or null.
Result<Isa> choose_isa(std::optional<Isa> forced, const char* environment,
                       std::span<const Isa> there);

}  // namespace tessera
