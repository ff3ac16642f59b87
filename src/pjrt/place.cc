// pjrt/place.cc: from a plugin's name to a device, and a call on it.
#include "pjrt/place.h"

#include <fmt/format.h>

#include <utility>

#include "base/timed.h"

namespace tessera::pjrt {

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
