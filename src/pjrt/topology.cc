// pjrt/topology.cc: gets the vendor's description of a target from its name.
#include "pjrt/topology.h"

#include <fmt/ranges.h>

#include "base/text.h"
#include "pjrt/api.h"
#include "plan/topology_name.h"

namespace tessera::pjrt {
namespace {

// Fields that the plugin cannot give stay empty.
DeviceDescription describe(const Plugin& plugin, PJRT_DeviceDescription* at) {
  DeviceDescription out;
  const Purpose purpose = {"a device must have a description", "it"};
  PJRT_DeviceDescription_Id_Args id = {};
  id.device_description = at;
  if (TESSERA_PJRT_CALL(plugin, PJRT_DeviceDescription_Id, id, purpose)) {
    out.id = id.id;
  }
  PJRT_DeviceDescription_Kind_Args kind = {};
  kind.device_description = at;
  if (TESSERA_PJRT_CALL(plugin, PJRT_DeviceDescription_Kind, kind, purpose)) {
    out.kind = text_of(kind.device_kind, kind.device_kind_size);
  }
  return out;
}

}  // namespace

template <>
void Destroyer<PJRT_TopologyDescription>::operator()(
    PJRT_TopologyDescription* object) const {
  PJRT_TopologyDescription_Destroy_Args args = {};
  args.topology = object;
  (void)TESSERA_PJRT_CALL(*plugin, PJRT_TopologyDescription_Destroy, args,
                          Purpose{"a topology must be freed", "it"});
}

Result<Topology> make_topology(const Plugin& plugin, const std::string& name) {
  const std::string quoted = in_quotes(name);
  const std::string rule =
      fmt::format("a target must be one that the plugin knows (libtpu: {})",
                  fmt::join(known_targets(), ", "));
  const Purpose purpose = {rule, quoted};
  if (name.find('\0') != std::string::npos) {
    return invalid("pjrt", "{}, found a NUL byte for {}", rule, quoted);
  }
  if (auto e = plan::check_sides("pjrt", name); !e) return e.error();
  PJRT_TopologyDescription_Create_Args create = {};
  create.topology_name = name.c_str();
  create.topology_name_size = name.size();
  auto ok = TESSERA_PJRT_CALL(plugin, PJRT_TopologyDescription_Create, create,
                              purpose);
  if (!ok) return ok.error();
  Topology out;
  out.name_ = name;
  out.handle_ = {create.topology, {&plugin}};
  if (!create.topology) {
    return invalid("pjrt", "{}, found nothing for {}", rule, quoted);
  }

  PJRT_TopologyDescription_PlatformName_Args platform = {};
  platform.topology = create.topology;
  if (TESSERA_PJRT_CALL(plugin, PJRT_TopologyDescription_PlatformName, platform,
                        purpose)) {
    out.platform_ =
        text_of(platform.platform_name, platform.platform_name_size);
  }
  PJRT_TopologyDescription_PlatformVersion_Args version = {};
  version.topology = create.topology;
  if (TESSERA_PJRT_CALL(plugin, PJRT_TopologyDescription_PlatformVersion,
                        version, purpose)) {
    out.platform_version_ =
        text_of(version.platform_version, version.platform_version_size);
  }
  PJRT_TopologyDescription_GetDeviceDescriptions_Args devices = {};
  devices.topology = create.topology;
  ok = TESSERA_PJRT_CALL(plugin, PJRT_TopologyDescription_GetDeviceDescriptions,
                         devices, purpose);
  if (!ok) return ok.error();
  for (size_t i = 0; i < devices.num_descriptions; ++i) {
    out.devices_.push_back(describe(plugin, devices.descriptions[i]));
  }
  return out;
}

}  // namespace tessera::pjrt
