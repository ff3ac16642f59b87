// cli/doctor/health.h: what this machine and build have, and what they lack.
#pragma once

#include <string>
#include <vector>

#include "run/lane_rules.h"
#include "run/probe.h"
#include "tessera/dispatch.h"

namespace tessera::cli {

struct Missing {
  std::string what, command;
};

struct Health {
  Machine machine;
  std::vector<run::PluginProbe> plugins;
  std::vector<Missing> missing;
};

// Examines this machine; loads every known plugin that is found.
Health examine_health();

// One line: what the lane runs with on this machine, or what it needs.
std::string lane_state(const LaneFacts& lane, const Health& health);

}  // namespace tessera::cli
