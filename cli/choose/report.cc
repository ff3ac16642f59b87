// cli/choose/report.cc: a choice as JSON and as text.
#include "cli/choose/report.h"

#include <fmt/format.h>

#include "receipt/parts.h"
#include "receipt/text.h"

namespace tessera::cli {
namespace {

Json rule_json(const DispatchRule& r, const Machine& m) {
  return {
      {"name", r.name},
      {"lane", to_string(r.lane)},
      {"direction", r.direction.empty() ? Json(nullptr) : Json(r.direction)},
      {"beyond_tokens", r.beyond_tokens},
      {"up_to_tokens",
       r.up_to_tokens > 0 ? Json(r.up_to_tokens) : Json(nullptr)},
      {"below_density",
       r.below_density ? Json(*r.below_density) : Json(nullptr)},
      {"source", source_words(r, m)}};
}

}  // namespace

Json choice_json(const Choice& c, const ChoiceOf& of, const Machine& m) {
  Json rejected = Json::object();
  for (const Rejected& r : c.rejected) {
    rejected[std::string(to_string(r.lane))] = r.reason;
  }
  Json gate = Json::array();
  for (const GateRow& row : c.gate) {
    gate.push_back(Json(receipt::fields_json(row)));
  }
  const bool xla = c.lane == LaneId::xla;
  return {{"lane", to_string(c.lane)},
          {"method", xla ? Json(to_string(c.method)) : Json(nullptr)},
          {"plugin", c.plugin.empty() ? Json(nullptr) : Json(c.plugin)},
          {"class", to_string(c.request_class)},
          {"reason", c.reason},
          {"rejected", rejected},
          {"gate", gate},
          {"rule", c.rule ? rule_json(*c.rule, m) : Json(nullptr)},
          {"needs", of.needs ? Json(*of.needs) : Json(nullptr)},
          {"tile", {of.tile.q, of.tile.kv}},
          {"tile_by", of.tile_by.empty() ? Json(nullptr) : Json(of.tile_by)},
          {"density", of.plan.density()},
          {"machine", m.key()}};
}

std::span<const JsonField> choice_json_fields() {
  static constexpr JsonField kFields[] = {
      {"lane, reason"},
      {"method, plugin", "null where the lane has none"},
      {"class", "shape class of the request"},
      {"tile", "[queries, keys] at which density is counted"},
      {"tile_by", "chooser of the tile; null: the request, or its default"},
      {"density", "share of tiles that are active"},
      {"rejected.LANE", "why not"},
      {"rule.{name,lane,direction,beyond_tokens,up_to_tokens,below_density,"
       "source}",
       "the rule that chose; null where none did"},
      {"gate[].NAME", "rows of --gate that speak of the request"},
      {"needs", "settings that a run would have to be told, or null"},
      {"machine"},
  };
  return kFields;
}

std::string choice_text(const Choice& c, const ChoiceOf& of, const Machine& m) {
  std::string out;
  const auto line = [&](std::string_view mark, std::string_view name,
                        std::string_view text) {
    out += fmt::format("{:<2}{:<11} {}\n", mark, name, text);
  };
  line("", "request",
       fmt::format("{}, {} of {} tiles active", to_string(c.request_class),
                   of.plan.active, of.plan.tiles));
  if (!of.tile_by.empty()) {
    line("", "tile",
         fmt::format("{}x{}: {}", of.tile.q, of.tile.kv, of.tile_by));
  }
  line("", "machine", m.key());
  line("*", to_string(c.lane),
       fmt::format("{}{}{}", c.reason,
                   c.plugin.empty() ? "" : fmt::format(" [{}]", c.plugin),
                   c.lane == LaneId::xla
                       ? fmt::format(" [{}]", to_string(c.method))
                       : ""));
  if (of.needs) line("", "needs", *of.needs);
  for (const GateRow& row : c.gate) line("", "gate", receipt::gate_words(row));
  if (c.rule)
    line("", "rule",
         fmt::format("{}: {}", c.rule->name, source_words(*c.rule, m)));
  for (const Rejected& r : c.rejected) line("", to_string(r.lane), r.reason);
  return out;
}

}  // namespace tessera::cli
