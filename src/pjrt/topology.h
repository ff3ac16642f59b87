// pjrt/topology.h: the devices of a target, which this machine need not have.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pjrt/handle.h"

struct PJRT_TopologyDescription;

namespace tessera::pjrt {

template <>
void Destroyer<PJRT_TopologyDescription>::operator()(
    PJRT_TopologyDescription* object) const;

struct DeviceDescription {
  int64_t id = 0;
  std::string kind;  // "TPU v6 lite"
};

class Topology {
 public:
  const std::string& name() const { return name_; }
  const Plugin& plugin() const { return *handle_.get_deleter().plugin; }
  const std::string& platform() const { return platform_; }  // "tpu"
  const std::string& platform_version() const { return platform_version_; }
  const std::vector<DeviceDescription>& devices() const { return devices_; }

  const PJRT_TopologyDescription* handle() const { return handle_.get(); }

 private:
  friend Result<Topology> make_topology(const Plugin&, const std::string&);

  std::string name_, platform_, platform_version_;
  std::vector<DeviceDescription> devices_;
  Handle<PJRT_TopologyDescription> handle_;
};

// The vendor defines the names and adds to them; an error has the vendor's
// words.
Result<Topology> make_topology(const Plugin& plugin, const std::string& name);

// TPU targets that are known to work, for help and errors.
std::span<const std::string_view> known_targets();

}  // namespace tessera::pjrt
