// run/verify.cc
#include "run/verify.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "pjrt/locate.h"
#include "run/lane_rules.h"
#include "run/receipt_parts.h"

namespace tessera {
namespace {

// What a second run cannot tell: history, time, and who wrote it. What history
// must hold all the same, contradictions() looks at.
constexpr std::string_view kHistory[] = {
    "compiles", "cache_hits", "ms",       "gflops",         "warnings", "lane",
    "choice",   "machine",    "fallback", "receipt_digest", "tessera"};

void add_field(const std::string& name, const Json& claimed, const Json& found,
               RunsCompared& out) {
  out.fields += count_leaves(found);
  Json a = Json::object(), b = Json::object();
  a[name] = claimed;
  b[name] = found;
  for (ReceiptDifference& d : differences(a, b)) {
    out.wrong.push_back(std::move(d));
  }
}

// The lane that the rules give, or that was named.
Result<Choice> choice_of(const Json& claimed, const RequestFeatures& features,
                         const PlanFacts& plan) {
  const Machine machine = machine_of(claimed);
  const std::string requested = claimed["lane"]["requested"];
  if (requested != "auto") {
    auto lane = parse_lane(requested);
    if (!lane) return lane.error();
    return by_name(*lane, features, machine);
  }
  auto gate = gate_of(claimed);
  if (!gate) return gate.error();
  auto choice = choose(features, plan, machine, *gate);
  return choice ? choice : no_lane(features, machine);
}

void compare_choice(const Json& claimed, const RequestFeatures& features,
                    const PlanFacts& plan, RunsCompared& out) {
  auto due = choice_of(claimed, features, plan);
  if (!due) {
    out.wrong.push_back({"choice.measured",
                         claimed["choice"]["measured"].dump(),
                         in_quotes(due.error().message)});
    return;
  }
  Receipt told;
  told.choice = tell(*due);
  told.lane.chosen = to_string(due->lane);
  const Json found = Json::parse(receipt_json(told));
  add_field("choice", claimed["choice"], found["choice"], out);
  add_field("lane.chosen", claimed["lane"]["chosen"], found["lane"]["chosen"],
            out);
}

// What the first machine is called cannot be looked at from another one, but
// its fields must fit each other.
void compare_elsewhere(const Json& claimed, RunsCompared& out) {
  const Json& machine = claimed["machine"];
  const Json& plugin = claimed["plugin"];
  const bool on_cpu = plugin.is_null() || plugin["platform"] == "cpu";
  add_field("device", claimed["device"],
            on_cpu ? machine["cpu"] : plugin["device"], out);
}

}  // namespace

int64_t count_leaves(const Json& value) {
  if (!value.is_structured() || value.empty()) return 1;
  int64_t out = 0;
  for (const Json& inner : value) out += count_leaves(inner);
  return out;
}

RunsCompared compare_runs(const Json& claimed, const Json& found,
                          const RequestFeatures& features,
                          const PlanFacts& plan) {
  RunsCompared out;
  out.here = claimed["machine"]["cpu"] == found["machine"]["cpu"];
  for (const auto& [name, value] : found.items()) {
    if (std::ranges::find(kHistory, name) != std::end(kHistory)) continue;
    if (name == "device" && !out.here) continue;
    add_field(name, claimed[name], value, out);
  }
  if (!out.here) compare_elsewhere(claimed, out);
  for (const char* field : {"executed", "family"}) {
    add_field(fmt::format("lane.{}", field), claimed["lane"][field],
              found["lane"][field], out);
  }
  const Json& isas = claimed["machine"]["isas"];
  if (claimed["isa"].is_string() &&
      std::ranges::find(isas, claimed["isa"]) == isas.end()) {
    out.wrong.push_back(
        {"isa", claimed["isa"].dump(), "one of machine.isas, " + isas.dump()});
  }
  compare_choice(claimed, features, plan, out);
  std::ranges::stable_sort(out.wrong, {}, &ReceiptDifference::field);
  return out;
}

Result<std::string> plugin_to_load(const Json& receipt,
                                   const std::optional<std::string>& named) {
  if (named) return *named;
  const std::string file = receipt["plugin"]["file"];
  for (const pjrt::KnownPlugin& known : pjrt::known_plugins()) {
    const auto path = pjrt::find_plugin(std::string(known.name));
    std::error_code absent;
    if (path && std::filesystem::equivalent(*path, file, absent)) return *path;
  }
  return unavailable("receipt",
                     "a receipt's plugin must be an installed one or be named "
                     "(--plugin) to be loaded, found {}",
                     in_quotes(file, 1000));
}

}  // namespace tessera
