// request/make_request.h: parses what was typed to a request with its facts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "receipt/request_fields.h"
#include "tessera/batch.h"
#include "tessera/layouts.h"
#include "tessera/plan.h"

namespace tessera::request {

struct Resolved {
  Request request;
  OwnedFacts facts;
  std::vector<std::string> written;  // the masks as the user wrote them
  std::optional<Target> target;
  receipt::RequestText given;  // as typed; empty for a plan file
};

Result<Resolved> resolve(const receipt::RequestText& given);
// The request alone: facts and target are not read.
Result<Request> resolve_request(const receipt::RequestText& given);

// "256x256", or "256" for a square.
Result<Tile> parse_tile(std::string_view text, std::string_view what);

}  // namespace tessera::request
