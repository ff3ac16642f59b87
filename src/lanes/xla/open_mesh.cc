// lanes/xla/open_mesh.cc: opens the devices of a mesh.
#include "lanes/xla/open_mesh.h"

#include "lanes/xla/client_options.h"
#include "shard/check.h"

namespace tessera::xla {

Result<std::shared_ptr<const OpenMesh>> open_mesh(
    const lanes::LaneOptions& options, const std::string& plugin) {
  if (auto e = shard::check_mesh(options.mesh); !e) return e.error();
  auto client_options = read_client_options(options.xla.client_options);
  if (!client_options) return client_options.error();
  auto on = pjrt::open_devices(plugin, options.xla.device,
                               options.mesh.devices(), *client_options);
  if (!on) return on.error();
  return std::make_shared<const OpenMesh>(options, *on->client, on->devices);
}

}  // namespace tessera::xla
