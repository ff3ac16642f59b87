// cli/request/flags.h: the request flags that most commands share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/request/make_request.h"
#include "cli/request/routed_picks.h"

namespace tessera::cli {

// Numbers are read later, so that every error reads alike.
struct RequestFlags : receipt::RequestText {
  std::optional<std::string> spec;  // a JSON file with the same request
  std::optional<std::string> plan;  // a saved plan, in place of a request

  bool operator==(const RequestFlags&) const = default;
};

// `target_help`: what --target is for, where it is not the default.
void add_request_flags(Command& command, RequestFlags& flags,
                       const char* target_help = nullptr);

// The fields of flags and spec together. A plan's are not among them.
Result<receipt::RequestText> request_text(const RequestFlags& flags);

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
Result<Loaded> load_request(const RequestFlags& flags,
                            const Lengths& otherwise = {},
                            const RouteFlags& route = {});

// Routes and plans, where there are no arrays to route by.
Result<void> take_picks(const RouteFlags& route, Loaded& loaded);

// The request alone, with the facts that a mask names or a flag gives: they
// are not read, and only which there are may be asked.
struct Asked {
  Request request;
  Facts present;
  bool open_tile = false;  // nobody said one
};
Result<Asked> load_asked(const RequestFlags& flags);

// A request with its plan: the saved one, or one made now. Its warnings go to
// stderr.
struct Planned {
  OwnedBatch batch;
  std::vector<std::string> written;  // the masks as the user wrote them
  std::optional<Target> target;
  receipt::RequestText given;  // as typed; empty where a plan file holds it
};
// Plans what is not saved; prints nothing.
Result<Planned> make_planned(Loaded loaded);
Result<Planned> plan_loaded(Loaded loaded);
Result<Planned> load_planned(const RequestFlags& flags,
                             const RouteFlags& route = {});
void print_warnings(const std::vector<std::string>& warnings);

// To stderr; where nobody can read it, it is lost.
void print_error(const std::string& text);

}  // namespace tessera::cli
