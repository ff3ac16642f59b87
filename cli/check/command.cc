// cli/check/command.cc: `tessera check`: the plan against brute force.
#include "cli/command.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/fail.h"
#include "base/units.h"
#include "cli/json_line.h"
#include "cli/numbers.h"
#include "cli/progress.h"
#include "cli/request/flags.h"
#include "cli/route/planned.h"
#include "plan/check_plan.h"
#include "request/numbers.h"

namespace tessera::cli {
namespace {

// The most pairs that are checked; about a minute of brute force.
constexpr int64_t kMaxPairs = int64_t{1} << 31;

struct Options {
  request::RequestFlags request;
  std::optional<std::string> rows, seed;
  bool json = false;
};

Result<int> run(const Options& o) {
  auto planned = load_planned(o.request);
  if (!planned) return planned.error();
  const Batch& batch = planned->batch;
  const Plan& plan = batch.plan();
  auto sample =
      o.rows ? request::parse_int(*o.rows, "--rows", 1, plan.forward.rows)
             : int64_t{0};
  if (!sample) return sample.error();
  auto seed = parse_seed(o.seed.value_or("0"));
  if (!seed) return seed.error();

  const int64_t rows = *sample > 0 ? *sample : plan.forward.rows;
  const double pairs = static_cast<double>(plan.forward.lists) *
                       static_cast<double>(rows * plan.tile.q) *
                       static_cast<double>(plan.kv_len);
  if (pairs > static_cast<double>(kMaxPairs)) {
    return over_limit("check",
                      "brute force holds at most {} pairs, found {} (check a "
                      "sample: --rows N tile rows of each list)",
                      kMaxPairs, with_unit(pairs));
  }
  auto legality = Legality::bind(batch.request(), batch.facts());
  if (!legality) return legality.error();

  plan::PlanCheck found;
  {
    Progress progress("checking");
    const auto show = progress.callback();
    found =
        plan::check_plan(*legality, plan, *sample, *seed, [&](int64_t done) {
          if (show) show(static_cast<double>(done) / pairs);
        });
  }
  if (o.json) {
    nlohmann::json out = {{"right", found.right()},
                          {"tiles", found.tiles},
                          {"pairs", found.pairs},
                          {"wrong", found.wrong},
                          {"transposed_agrees", found.transposed_agrees},
                          {"sampled", *sample > 0}};
    if (found.wrong > 0) out["first_wrong"] = found.first_wrong;
    fmt::print("{}\n", json_line(out));
  } else if (found.right()) {
    fmt::print(
        "right: {} tiles agree with brute force over {} pairs, and the "
        "transposed lists with the forward ones\n",
        found.tiles, found.pairs);
  } else {
    fmt::print(
        "wrong: {} of {} tiles; {}\n", found.wrong, found.tiles,
        found.wrong > 0 ? found.first_wrong : "the transposed lists differ");
  }
  return found.right() ? kOk : kFailed;
}

constexpr JsonField kJsonFields[] = {
    {"right, tiles, pairs, sampled"},
    {"wrong, first_wrong", "tiles whose class differs, and where"},
    {"transposed_agrees", "with the forward lists"},
};

}  // namespace

Command check_command() {
  auto o = std::make_shared<Options>();
  Command command{"check", "Check the plan against brute force, pair by pair"};
  add_request_flags(command, o->request);
  add_flags(command,
            {
                {"--rows", &o->rows, "N",
                 "Check a random sample of N tile rows of each list [all]"},
                {"--seed", &o->seed, "N", "Seed of the sample [0]"},
                {"--json", &o->json, "", "One JSON object on stdout"},
            });
  command.footer =
      "Example:\n"
      "  tessera check --mask '(sink(4) | window(63, 0)) & causal & documents' "
      "\\\n"
      "      --q-len 2000 --docs lognormal:mean=300 --tile 64x32\n"
      "\n"
      "Exit code 1 when a class differs.";
  command.json_fields = kJsonFields;
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::cli
