// cli/choose/report.h: a choice among lanes, as `tessera choose` shows it.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "base/json_read.h"
#include "cli/command.h"
#include "tessera/dispatch.h"

namespace tessera::cli {

// The request that a choice is for.
struct ChoiceOf {
  PlanFacts plan;
  Tile tile;
  std::string tile_by;  // what chose `tile`; "": the request, or its default
  std::optional<std::string> needs;  // a flag that a run of it would need
};
Json choice_json(const Choice& choice, const ChoiceOf& of,
                 const Machine& machine);
std::span<const JsonField> choice_json_fields();
std::string choice_text(const Choice& choice, const ChoiceOf& of,
                        const Machine& machine);

}  // namespace tessera::cli
