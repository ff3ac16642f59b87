// request/load.h: loads a request from flags, a spec file or a saved plan, and
// plans it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "receipt/request_fields.h"
#include "request/make_request.h"
#include "request/pick_source.h"
#include "request/route_flags.h"
#include "tessera/batch.h"

namespace tessera::request {

// Fields stay text until later, so that flags and specs give the same errors.
struct RequestFlags : receipt::RequestText {
  std::optional<std::string> spec;  // a JSON file with the same request
  std::optional<std::string> plan;  // a saved plan, in place of a request
};

// The fields of flags and spec together, without those of a saved plan.
Result<receipt::RequestText> request_text(const RequestFlags& typed);

// Lengths that the caller knows, for flags and a spec that leave them open.
struct Lengths {
  std::optional<int64_t> batch, q_len, kv_len;
};

// The request, its facts and, if it comes from a plan file, its plan.
struct Loaded {
  Resolved resolved;                // without the facts of a saved plan
  std::optional<OwnedBatch> saved;  // of --plan, or once its picks are routed
  // Where the picks of a router come from; they are no facts yet.
  std::optional<PickSource> source;
};
Result<Loaded> load_request(const RequestFlags& typed,
                            const Lengths& otherwise = {},
                            const RouteFlags& route = {});

// The request without its facts. `present` only says which facts a mask names
// or a flag gives; of picks, from a saved plan or --picks, it also has heads,
// slots and meaning.
struct Asked {
  Request request;
  Facts present;
  bool open_tile = false;  // no tile was given
};
Result<Asked> load_asked(const RequestFlags& typed);

// A request with its plan: the saved one, or one made now.
struct Planned {
  OwnedBatch batch;
  std::vector<std::string> written;  // the masks as the user wrote them
  std::optional<Target> target;
  receipt::RequestText given;  // as typed; empty for a plan file
};
// Plans the request, unless its plan was saved.
Result<Planned> make_planned(Loaded loaded);

}  // namespace tessera::request
