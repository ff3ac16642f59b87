// lanes/mosaic/tpu.cc: looks for the device before libtpu would wait for it.
#include "lanes/mosaic/tpu.h"

#include <string_view>

#include "base/fail.h"
#include "base/text.h"
#include "pjrt/tpu_here.h"
#include "tessera/machine.h"

namespace tessera::mosaic {
namespace {

constexpr std::string_view kPlugin = "libtpu";

}  // namespace

Result<std::string> target_of(const pjrt::Place& on) {
  if (on.client->platform() != "tpu") {
    return unavailable("mosaic",
                       "a TPU must be there to run its kernel, found a {} "
                       "device",
                       on_a_line(on.client->platform()));
  }
  const auto chip = chip_of_device(on.device->kind);
  if (chip) return std::string(chip->target);
  return unavailable("mosaic", "a device must be a TPU of {}, found {}",
                     chip_names(), in_quotes(on.device->kind));
}

std::string tpu_plugin(const XlaOptions& options) {
  return options.plugin.empty() ? std::string(kPlugin) : options.plugin;
}

Result<void> check_tpu_here(const XlaOptions& options) {
  if (tpu_plugin(options) != kPlugin || pjrt::is_tpu_here()) return {};
  return unavailable("mosaic",
                     "a TPU must be there to run its kernel, found none (to "
                     "compile ahead needs none)");
}

Result<Tpu> open_tpu(const XlaOptions& options,
                     const pjrt::ClientOptions& client) {
  if (auto e = check_tpu_here(options); !e) return e.error();
  auto place = pjrt::open_place(tpu_plugin(options), options.device, client);
  if (!place) return place.error();
  auto target = target_of(*place);
  if (!target) return target.error();
  return Tpu{*place, std::move(*target)};
}

}  // namespace tessera::mosaic
