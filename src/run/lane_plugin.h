// run/lane_plugin.h: which of a machine's plugins a lane takes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/dispatch.h"
#include "tessera/machine.h"

namespace tessera::run {

// The plugin that would run or compile for the lane: a device that is no CPU
// first, of a mesh's CPUs their default. Null: there is none, and why.
const MachinePlugin* plugin_for(const LaneFacts& lane, const Machine& machine,
                                const CallFeatures& call);
std::string no_plugin(const LaneFacts& lane, const Machine& machine,
                      const CallFeatures& call);

// Of a lane that runs an artifact: whether that was exported for the platform.
bool is_exported_for(const LaneFacts& lane, const CallFeatures& call,
                     std::string_view platform);

}  // namespace tessera::run
