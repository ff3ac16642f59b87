// cli/gate/plain.cc: opens XLA's programs.
#include "cli/gate/plain.h"

#include <filesystem>
#include <utility>

namespace tessera::cli {

Result<std::vector<Plain>> open_plains(const std::optional<std::string>& asked,
                                       std::string& plugin) {
  std::vector<Plain> out;
  for (const XlaMethod method :
       {XlaMethod::dense, XlaMethod::chunked, XlaMethod::worklist}) {
    SessionOptions options;
    options.lane = LaneId::xla;
    options.xla.method = method;
    if (asked) options.xla.plugin = *asked;
    auto session = Session::open(std::move(options));
    auto place =
        session ? session->place() : Result<PluginPlace>(session.error());
    if (!place) {
      if (place.error().kind != ErrorKind::unavailable || asked) {
        return place.error();
      }
      plugin = place.error().message;
      break;
    }
    plugin = std::filesystem::path(place->plugin).filename();
    out.push_back({method, std::move(*session)});
  }
  return out;
}

}  // namespace tessera::cli
