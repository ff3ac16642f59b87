// cli/request/routed_picks.h: the picks of a routed(...) mask: given in a file,
// drawn, or of the router over a command's own q and k.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cli/request/make_request.h"
#include "cli/route/drawn_inputs.h"
#include "cli/route/flags.h"
#include "cli/route/inputs.h"
#include "route/memory_use.h"
#include "tessera/batch.h"
#include "tessera/route.h"

namespace tessera::cli {

// Does a mask ask for a router?
bool names_router(const Request& request);

// What --picks says for a mask that names a router, not yet judged.
struct PickSource {
  std::string name;  // of the source, for reports; "" where none is given
  PicksFile file;
  std::optional<DrawnInputs> drawn;

  // Picks, or all that makes them, are here.
  bool complete() const { return drawn || file.picks || file.tile_picks; }
};
Result<PickSource> read_pick_source(const std::optional<std::string>& source,
                                    const Request& request,
                                    const RouteFlags& flags);

// Flags that nobody would read are refused: what only scoring reads beside
// given picks, how many groups to keep beside given ones.
Result<void> check_unread(const RouteFlags& flags, const PicksFile& given);

// Bytes that route_batch() will take for a command with q and k of this shape,
// before these are made. Settings that do not fit each other and picks that do
// not fit the shape are errors.
Result<double> routing_bytes(const RouteFlags& flags, const PickSource& source,
                             const Resolved& resolved,
                             const routing::RouteShape& shape, int threads);

// Routes, or takes given picks in at legality, and plans. The router's warnings
// go to stderr. `arrays` has the command's q and k, where it has any.
Result<OwnedBatch> route_batch(const RouteFlags& flags,
                               const PickSource& source, RouteInputs arrays,
                               const RouteOptions& options,
                               const Resolved& resolved);

}  // namespace tessera::cli
