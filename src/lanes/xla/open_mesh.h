// lanes/xla/open_mesh.h: the devices of a mesh that a session opened.
#pragma once

#include <memory>
#include <string>

#include "lanes/lane.h"
#include "pjrt/compile_cache.h"
#include "pjrt/place.h"

namespace tessera::xla {

struct OpenMesh {
  lanes::LaneOptions options;
  const pjrt::Client* client;
  pjrt::Devices devices;  // in the mesh's order
  PluginPlace place;
  mutable pjrt::CompileCache cache;

  OpenMesh(const lanes::LaneOptions& o, const pjrt::Client& c, pjrt::Devices d)
      : options(o),
        client(&c),
        devices(std::move(d)),
        place(pjrt::describe({client, &devices.front()})),
        cache({.folder = o.xla.cache_folder,
               .max_bytes = o.xla.max_cache_bytes,
               .max_compiles = o.xla.max_compiles}) {}
};

// Opens as many devices of the plugin as the options' mesh has, starting with
// the options' device.
Result<std::shared_ptr<const OpenMesh>> open_mesh(
    const lanes::LaneOptions& options, const std::string& plugin);

}  // namespace tessera::xla
