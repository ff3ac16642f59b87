// run/pick_lane.cc: asks the rules, first without loading all plugins.
#include "run/pick_lane.h"

#include "run/lane_rules.h"

namespace tessera::run {

Result<Choice> pick_lane(const LaneWish& wish, const RequestFeatures& features,
                         const PlanFacts& plan, bool as_given,
                         std::optional<Machine>& machine) {
  if (!machine) machine = this_machine(!wish.gate.rows.empty());
  if (wish.lane) return by_name(*wish.lane, features, plan, *machine);
  auto choice = choose(features, plan, *machine, wish.gate);
  if (!choice && !as_given && !machine->asked_plugins) {
    machine = this_machine(true);
    choice = choose(features, plan, *machine, wish.gate);
  }
  if (choice || wish.fallback.empty()) return choice;
  return no_lane(features, plan, *machine, wish.gate);
}

}  // namespace tessera::run
