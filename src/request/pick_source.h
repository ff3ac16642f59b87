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

// Does a mask ask for a router?
bool names_router(const Request& request);

// What --picks says for a mask that names a router, not yet judged.
struct PickSource {
  std::string name;  // of the source, for reports; "" where none is given
  PicksFile file;
  std::optional<DrawnPicks> drawn;

  // Picks, or all that makes them, are here.
  bool complete() const { return drawn || file.picks || file.tile_picks; }
};
Result<PickSource> read_pick_source(const std::optional<std::string>& source,
                                    const Request& request,
                                    const RouteFlags& route);

// The picks of a source, or all that makes them, must be there.
Result<void> check_complete(const PickSource& source);

// What --picks says of heads, slots and meaning, for a mask that names picks or
// none. Nothing is routed: there are no blocks in it.
Result<Picks> asked_picks(const std::string& source, const Request& request);

// Settings that nobody would read are refused: what only scoring reads beside
// given picks, how many groups to keep beside given ones.
Result<void> check_unread(const RouteFlags& route, const PicksFile& given);

// Bytes that routing will take for a call with q and k of this shape, before
// these are made. Settings that do not fit each other and picks that do not fit
// the shape are errors.
Result<double> routing_bytes(const RouteFlags& route, const PickSource& source,
                             const Resolved& resolved,
                             const routing::RouteShape& shape, int threads);

}  // namespace tessera::request
