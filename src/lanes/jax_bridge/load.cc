// lanes/jax_bridge/load.cc: reads an artifact and its shapes from their files.
#include <utility>

#include "base/fail.h"
#include "base/files.h"
#include "pjrt/compile.h"
#include "tessera/bridge.h"

namespace tessera {
namespace {

constexpr int64_t kMaxShapesBytes = int64_t{1} << 24;

}  // namespace

Result<BridgeArtifact> load_artifact(const std::string& path,
                                     const std::string& shapes_path) {
  auto text = read_file(shapes_path, kMaxShapesBytes);
  if (!text) return text.error();
  auto spec = parse_bridge_spec(*text);
  if (!spec) return in_file(spec.error(), shapes_path);
  auto program = read_file(path, pjrt::kMaxProgramBytes);
  if (!program) return program.error();
  return BridgeArtifact{std::move(*program), std::move(*spec)};
}

}  // namespace tessera
