// cli/choose/report.h: a choice among lanes, as `tessera choose` shows it.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "base/json_read.h"
#include "cli/command.h"
#include "tessera/dispatch.h"

namespace tessera::cli {

// What was chosen for.
struct ChoiceOf {
  PlanFacts plan;
  Tile tile;
  std::string tile_by;  // who chose it; "": the request, or its default
  std::optional<std::string> needs;  // what a run of it would have to be told
};
Json choice_json(const Choice& choice, const ChoiceOf& of,
                 const Machine& machine);
std::span<const JsonField> choice_json_fields();
std::string choice_text(const Choice& choice, const ChoiceOf& of,
                        const Machine& machine);

}  // namespace tessera::cli
