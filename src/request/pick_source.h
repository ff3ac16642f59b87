// request/pick_source.h: where the picks of a routed(...) mask come from: a
// file, a draw, or the router over a call's own q and k.
#pragma once

#include <optional>
#include <string>

#include "request/drawn_picks.h"
#include "request/make_request.h"
#include "request/picks_file.h"
#include "request/route_flags.h"
#include "route/memory_use.h"

namespace tessera::request {

// Whether a mask names a router.
bool names_router(const Request& request);

// What --picks gives for a mask that names a router, not checked for legality.
struct PickSource {
  std::string name;  // of the source, for reports; "": none was given
  PicksFile file;
  std::optional<DrawnPicks> drawn;

  // Whether the picks, or the settings to draw them, are here.
  bool complete() const { return drawn || file.picks || file.tile_picks; }
};
Result<PickSource> read_pick_source(const std::optional<std::string>& source,
                                    const Request& request,
                                    const RouteFlags& route);

// An error if the source is not complete().
Result<void> check_complete(const PickSource& source);

// Heads, slots and meaning of --picks, whether or not a mask names picks.
// Nothing is routed, so the result has no blocks.
Result<Picks> asked_picks(const std::string& source, const Request& request);

// Refuses settings that would not be read: those of scoring if picks are given,
// and how many groups to keep if groups are given.
Result<void> check_unread(const RouteFlags& route, const PicksFile& given);

// Bytes that routing will take for a call with q and k of this shape, before q
// and k are made. Settings that do not fit each other and picks that do not fit
// the shape are errors.
Result<double> routing_bytes(const RouteFlags& route, const PickSource& source,
                             const Resolved& resolved,
                             const routing::RouteShape& shape, int threads);

}  // namespace tessera::request
