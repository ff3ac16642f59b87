// cli/schedule/options.cc: reads and checks the options of `tessera schedule`.
#include "cli/schedule/options.h"

#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "cli/route/routed_batch.h"
#include "cli/schedule/kernels.h"
#include "request/numbers.h"

namespace tessera::cli {
namespace {

constexpr int64_t kMaxTrips = int64_t{1} << 53;

// Parses "REGION=N" at the last equals sign, since a region's name may hold
// one.
Result<schedule::TripRule> parse_trips(const std::string& text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0) {
    return invalid("cli", "--trips must be REGION=N, found {}",
                   in_quotes(text));
  }
  auto n = request::parse_int(std::string_view(text).substr(equals + 1),
                              "--trips", 0, kMaxTrips);
  if (!n) return n.error();
  return schedule::TripRule{text.substr(0, equals), static_cast<double>(*n)};
}

}  // namespace

Result<void> check_flags(const ScheduleFlags& o) {
  const bool own = asks_own_kernel(o);
  if (o.program ? o.dump.has_value() : !own && !o.dump) {
    return invalid("cli",
                   "schedule must be given a program, --dump or a request, "
                   "found {}",
                   o.program ? "a program and --dump" : "none");
  }
  if (o.dump && (o.keep || o.plugin)) {
    return invalid("cli", "{} goes with a program, found it with --dump",
                   o.keep ? "--keep" : "--plugin");
  }
  if (own) return {};
  const std::string found = first_kernel_flag(o);
  if (found.empty()) return {};
  return invalid(
      "cli", "a program takes no flags of a kernel, found {} beside it", found);
}

Result<schedule::ScheduleOptions> read_schedule_options(
    const ScheduleFlags& o) {
  const RunFlags& flags = o.kernel.run;
  schedule::ScheduleOptions options;
  options.target = flags.request.target.value_or("v6e:1x1");
  if (auto chip = schedule::find_chip(options.target); !chip)
    return chip.error();
  for (const std::string& text : o.trips) {
    auto rule = parse_trips(text);
    if (!rule) return rule.error();
    options.rules.push_back(std::move(*rule));
  }
  if (flags.heads) {
    auto heads = request::parse_int(*flags.heads, "--heads", 1, 1 << 20);
    if (!heads) return heads.error();
    options.heads = *heads;
  }
  return options;
}

Result<std::optional<request::Resolved>> asked_request(
    request::RequestFlags f) {
  f.target.reset();  // it is the compile target here, not part of the request
  const bool asked =
      f.plan || f.spec || !f.masks.empty() || f.q_len || f.kv_len || f.docs;
  if (!asked) return std::optional<request::Resolved>();
  auto loaded = load_request(f);
  if (!loaded) return loaded.error();
  if (auto e = take_picks({}, *loaded); !e) return e.error();
  if (loaded->saved) {
    loaded->resolved.facts = own_facts(loaded->saved->facts());
  }
  return std::optional<request::Resolved>(std::move(loaded->resolved));
}

}  // namespace tessera::cli
