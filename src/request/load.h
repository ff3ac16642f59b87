// request/load.h: a request from flags, a spec file or a saved plan, as far as
// its plan.
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

// Numbers are read later, so that every error reads alike.
struct RequestFlags : receipt::RequestText {
  std::optional<std::string> spec;  // a JSON file with the same request
  std::optional<std::string> plan;  // a saved plan, in place of a request
};

// The fields of flags and spec together. A plan's are not among them.
Result<receipt::RequestText> request_text(const RequestFlags& typed);

// Lengths that somebody else knows, for flags and a spec that leave them open.
struct Lengths {
  std::optional<int64_t> batch, q_len, kv_len;
};

// The request, its facts and where it comes from a file, its plan.
struct Loaded {
  Resolved resolved;                // without the facts of a saved plan
  std::optional<OwnedBatch> saved;  // of --plan, or once its picks are routed
  // Of a mask that names a router: where its picks, which are no fact yet, come
  // from.
  std::optional<PickSource> source;
};
Result<Loaded> load_request(const RequestFlags& typed,
                            const Lengths& otherwise = {},
                            const RouteFlags& route = {});

// The request alone, with the facts that a mask names or a flag gives: they
// are not read, and only which there are may be asked; of picks, a saved plan's
// or those of --picks, their heads, slots and meaning too.
struct Asked {
  Request request;
  Facts present;
  bool open_tile = false;  // nobody said one
};
Result<Asked> load_asked(const RequestFlags& typed);

// A request with its plan: the saved one, or one made now.
struct Planned {
  OwnedBatch batch;
  std::vector<std::string> written;  // the masks as the user wrote them
  std::optional<Target> target;
  receipt::RequestText given;  // as typed; empty where a plan file holds it
};
// Plans what is not saved; prints nothing.
Result<Planned> make_planned(Loaded loaded);

}  // namespace tessera::request
