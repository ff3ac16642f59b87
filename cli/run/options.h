// cli/run/options.h: what `tessera run` is asked, beside the request.
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

// Larger gate tables are refused unread.
inline constexpr int64_t kMaxGateBytes = int64_t{1} << 26;

struct RunOptions {
  // Shape, dtype, layout, direction; lengths and arrays are still empty.
  request::AttentionData data;
  SessionOptions lanes;            // which may run, and what each is asked
  std::optional<Session> session;  // of them, once open_early opened it
  // Where the cpu lane tells its progress, while something listens.
  std::shared_ptr<std::function<void(double)>> progress =
      std::make_shared<std::function<void(double)>>();
  uint64_t seed = 0;
  bool sink_logits = false;  // from the seed, unless the file has them
  std::optional<request::InputFile> inputs;
};

// The sizes, dtype, scale and softcap: the flags', or those of o.inputs.
Result<void> read_shape(const RunFlags& flags, RunOptions& o);

// Of --artifact and --shapes, which go together; nothing where neither is
// given.
Result<std::optional<BridgeArtifact>> read_artifact(
    const std::optional<std::string>& file,
    const std::optional<std::string>& shapes);

// --mesh, and how a batch is spread over it.
Result<void> read_mesh(const RunFlags& flags, SessionOptions& o);

// --lane, --fallback, --gate and what each lane is asked.
Result<void> read_lane_options(const RunFlags& flags, SessionOptions& lanes);

// Flags of a lane that is none of these are refused; `asked` is how the error
// calls them: "cpu".
Result<void> check_lane_flags(const RunFlags& flags,
                              const std::vector<LaneId>& lanes,
                              std::string_view asked);

// What the rules chose may need other flags than those that are there. A lane
// that was named has had its flags checked.
Result<void> check_choice(const RunFlags& flags, const Choice& choice,
                          const SessionOptions& asked);

// What can be told before there is any array, and the session. A lane that
// others may stand in for is asked later.
Result<void> open_early(RunOptions& options);

// Reads the input file too: what it says fills the flags that are absent.
Result<RunOptions> read_run_options(const RunFlags& flags);

}  // namespace tessera::cli
