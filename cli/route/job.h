// cli/route/job.h: the inputs and results of `tessera route`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/route/flags.h"
#include "cli/route/inputs.h"
#include "cli/route/report.h"
#include "cli/run/flags.h"
#include "cli/run/options.h"
#include "request/attention_data.h"
#include "request/make_request.h"
#include "request/picks_file.h"

namespace tessera::cli {

struct RouteCommandFlags {
  RunFlags run;  // only the request and the sizes of q and k are used
  request::RouteFlags route;
  std::optional<std::string> stage, spread, batch_row, head, width;
  bool recall = false;
  bool ascii = false;
  bool no_picture = false;
};

// Owns the arrays that the router views.
struct RouteJob {
  request::Resolved resolved;
  RouteSettings settings;
  std::optional<RouteStage> until;
  request::Array q, k;
  bool arrays = false;
  int64_t batch_row = 0, head = 0;  // shown in the pictures
  std::optional<int64_t> width;
  request::PicksFile picks;
  RouteOptions options;
  RouteReport report;

  RouteInputs inputs() const {
    RouteInputs in;
    if (arrays) in.q = q.view(), in.k = k.view();
    picks.add_to(in);
    return in;
  }
};

// Reads and checks all flags and files, before any work.
Result<RouteJob> make_route_job(const RouteCommandFlags& flags);

}  // namespace tessera::cli
