// cli/request/routed_picks.h: the picks of a routed(...) mask: given in a file,
// drawn, or of the router over a command's own q and k.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cli/data/clustered_inputs.h"
#include "cli/request/make_request.h"
#include "cli/route/flags.h"
#include "cli/route/inputs.h"
#include "receipt/receipt.h"
#include "route/memory_use.h"
#include "tessera/route.h"

namespace tessera::cli {

// q and k that are drawn for a plan's sake.
struct DrawnInputs {
  int64_t heads = 1, kv_heads = 1, dim = 64;
  Clusters clusters;
};

// "clustered" or "clustered:dim=128,seed=3"; nothing for any other source,
// which is a file.
Result<std::optional<DrawnInputs>> parse_drawn(std::string_view source);

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

// q and k that are yet to be drawn, and what routing makes of them, must fit
// the memory that is free.
Result<void> check_drawn(const Resolved& resolved,
                         const RouteSettings& settings, const RouteShape& shape,
                         Dtype dtype, int threads);

// Bytes that route_picks() will take for a command with q and k of this shape,
// before these are made. Settings that do not fit each other and picks that do
// not fit the shape are errors.
Result<double> routing_bytes(const RouteFlags& flags, const PickSource& source,
                             const Resolved& resolved, const RouteShape& shape,
                             int threads);

// Routes, or takes given picks in at legality, and makes them a fact of the
// request. Warnings go to stderr. `arrays` has the command's q and k, where it
// has any; `ms` is what it took beside drawing.
Result<Receipt::Routing> route_picks(const RouteFlags& flags,
                                     const PickSource& source,
                                     RouteInputs arrays,
                                     const RouteOptions& options,
                                     Resolved& resolved, double& ms);

}  // namespace tessera::cli
