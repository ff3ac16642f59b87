// cli/choose/report.h: a choice among lanes, as `tessera choose` shows it.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "base/json_read.h"
#include "cli/command.h"
#include "tessera/dispatch.h"

namespace tessera::cli {

// What the reasons of a choice do not say of a row.
std::string gate_words(const GateRow& row);

// `needs`: what a run of it would have to be told.
Json choice_json(const Choice& choice, const PlanFacts& plan,
                 const Machine& machine,
                 const std::optional<std::string>& needs);
std::span<const JsonField> choice_json_fields();
std::string choice_text(const Choice& choice, const PlanFacts& plan,
                        const Machine& machine,
                        const std::optional<std::string>& needs);

}  // namespace tessera::cli
