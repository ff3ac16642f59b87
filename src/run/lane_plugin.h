// run/lane_plugin.h: which of a machine's plugins a lane takes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/dispatch.h"
#include "tessera/machine.h"

namespace tessera::run {

// The plugin that would run or compile for the lane: a device other than a CPU
// comes first; a mesh of CPUs prefers the default CPU plugin. Null if there is
// none; no_plugin() then says why.
const MachinePlugin* plugin_for(const LaneFacts& lane, const Machine& machine,
                                const CallFeatures& call);
std::string no_plugin(const LaneFacts& lane, const Machine& machine,
                      const CallFeatures& call);

// Whether the lane's artifact is for the platform; true without an artifact.
bool is_exported_for(const LaneFacts& lane, const CallFeatures& call,
                     std::string_view platform);

}  // namespace tessera::run
