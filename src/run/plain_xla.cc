// run/plain_xla.cc: opens XLA's programs.
#include "run/plain_xla.h"

#include <filesystem>
#include <utility>

namespace tessera::run {

Result<std::vector<PlainXla>> open_plain_xla(
    const std::optional<std::string>& asked, std::string& plugin) {
  std::vector<PlainXla> out;
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

}  // namespace tessera::run
