// pjrt/place.cc: opens devices by a plugin's name, and calls programs on them.
#include "pjrt/place.h"

#include <fmt/format.h>

#include <utility>

#include "base/fail.h"
#include "base/threads.h"
#include "base/timed.h"
#include "pjrt/environment.h"

namespace tessera::pjrt {
namespace {

int64_t count_of(const Client& client) {
  return static_cast<int64_t>(client.devices().size());
}

}  // namespace

Result<Place> open_place(const std::string& plugin, int64_t device,
                         const ClientOptions& options) {
  auto opened = open_plugin({plugin, {}});
  if (!opened) return opened.error();
  auto client = open_client(**opened, options);
  if (!client) return client.error();
  auto found = find_device(**client, device);
  if (!found) return found.error();
  return Place{*client, *found};
}

PluginPlace describe(const Place& place) {
  const Plugin& plugin = place.client->plugin();
  return {plugin.path(), fmt::format("0.{}", plugin.minor_version()),
          place.client->platform(), place.client->platform_version(),
          describe(*place.device)};
}

Result<Places> take_devices(const Client& client, int64_t first,
                            int64_t count) {
  if (first < 0 || count < 1 || count > count_of(client) - first) {
    return unavailable("mesh",
                       "a mesh must have its {} devices from number {} on, "
                       "found {}",
                       count, first, count_of(client));
  }
  // Otherwise XLA would end the process after a minute (environment.h).
  if (count > 1 && client.platform() == "cpu" && client.threads() <= count) {
    return unavailable(
        "mesh",
        "a mesh of {0} CPU devices must have more threads than devices, found "
        "{1}, for the plugin was opened for fewer devices before; open the "
        "mesh first, or start the process with NPROC={2}",
        count, client.threads(), count + machine_threads());
  }
  std::vector<const Device*> devices;
  for (int64_t i = first; i < first + count; ++i) {
    devices.push_back(&client.devices()[static_cast<size_t>(i)]);
  }
  return Places{&client, Devices(std::move(devices))};
}

Result<Places> open_devices(const std::string& plugin, int64_t first,
                            int64_t count, const ClientOptions& options) {
  // Called before the first client, since XLA reads the number once. Devices
  // that no client has are refused below.
  if (first >= 0 && count <= kMaxDevices - first) raise_threads(first + count);
  auto one = open_place(plugin, first, options);
  if (!one) return one.error();
  if (one->client->platform() == "cpu" && options.empty() &&
      count > count_of(*one->client) - first) {
    if (count > kMaxDevices - first) {
      return over_limit("mesh",
                        "devices of a mesh on CPUs must have numbers below {}, "
                        "found {} from number {} on",
                        kMaxDevices, count, first);
    }
    one = open_place(plugin, first, {{kDeviceCount, first + count}});
    if (!one) return one.error();
  }
  return take_devices(*one->client, first, count);
}

Result<std::vector<Buffer>> send_and_execute(const Loaded& program,
                                             std::span<const HostArray> arrays,
                                             double& transfer_ms,
                                             double& run_ms) {
  std::vector<Buffer> sent;
  sent.reserve(arrays.size());
  auto ok = timed(transfer_ms, [&]() -> Result<void> {
    for (const HostArray& a : arrays) {
      if (a.sent) continue;
      auto buffer =
          to_device(program.client(), program.device(), a.type, a.data);
      if (!buffer) return buffer.error();
      sent.push_back(std::move(*buffer));
    }
    return {};
  });
  if (!ok) return ok.error();
  std::vector<const Buffer*> handed;
  handed.reserve(sent.size());
  auto next = sent.begin();
  for (const HostArray& a : arrays) {
    handed.push_back(a.sent ? a.sent : &*next++);
  }
  return timed(run_ms, [&] { return execute(program, handed); });
}

}  // namespace tessera::pjrt
