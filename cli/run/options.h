// cli/run/options.h: the options of `tessera run` besides the request.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/run/flags.h"
#include "request/attention_data.h"
#include "request/tensor_file.h"
#include "tessera/session.h"

namespace tessera::cli {

// Larger gate tables are refused without reading them.
inline constexpr int64_t kMaxGateBytes = int64_t{1} << 26;

struct RunOptions {
  // Has shape, dtype, layout and direction; lengths and arrays are set later.
  request::AttentionData data;
  SessionOptions lanes;            // the lanes that may run, and their options
  std::optional<Session> session;  // set by open_early()
  // Lane cpu calls this with its progress; an empty function is not called.
  std::shared_ptr<std::function<void(double)>> progress =
      std::make_shared<std::function<void(double)>>();
  uint64_t seed = 0;
  bool sink_logits = false;  // drawn from the seed unless the file has them
  std::optional<request::InputFile> inputs;
};

// Reads sizes, dtype, scale and softcap from the flags or from o.inputs.
Result<void> read_shape(const RunFlags& flags, RunOptions& o);

// The artifact of --artifact and --shapes, which go together; absent if neither
// is given.
Result<std::optional<BridgeArtifact>> read_artifact(
    const std::optional<std::string>& file,
    const std::optional<std::string>& shapes);

// Reads --mesh and the flags that spread a batch over it.
Result<void> read_mesh(const RunFlags& flags, SessionOptions& o);

// Reads --lane, --fallback, --gate and the options of each lane.
Result<void> read_lane_options(const RunFlags& flags, SessionOptions& lanes);

// Refuses flags that none of these lanes accepts. `asked` is the text for the
// lanes in the error: "cpu".
Result<void> check_lane_flags(const RunFlags& flags,
                              const std::vector<LaneId>& lanes,
                              std::string_view asked);

// Checks the flags against the lane, plugin and method that the rules chose.
// The flags of a lane that was named are checked already.
Result<void> check_choice(const RunFlags& flags, const Choice& choice,
                          const SessionOptions& asked);

// Opens the session and checks what can be checked before any array is made.
// With
// --fallback the lane's checks run later.
Result<void> open_early(RunOptions& options);

// Reads the input file too; its values are used for absent flags.
Result<RunOptions> read_run_options(const RunFlags& flags);

}  // namespace tessera::cli
