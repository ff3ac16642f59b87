// cli/check/command.cc: `tessera check`: the plan against brute force.
#include "cli/command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "base/fail.h"
#include "cli/numbers.h"
#include "cli/plan/report.h"
#include "cli/request/flags.h"
#include "tessera/plan.h"

namespace tessera::cli {
namespace {

// About a minute of brute force.
constexpr int64_t kMaxPairs = int64_t{1} << 31;

struct Options {
  RequestFlags request;
  std::optional<std::string> rows, seed;
  bool json = false;
};

struct Tally {
  int64_t tiles = 0;
  int64_t pairs = 0;
  int64_t wrong = 0;
  std::string first_wrong;
};

constexpr const char* kClassNames[] = {"empty", "partial", "full"};

TileClass brute_force(const Legality& legality, const Plan& plan, int64_t b,
                      int64_t h, int64_t row, int64_t column, Tally& tally) {
  const int64_t q1 = std::min((row + 1) * plan.tile.q, plan.q_len);
  const int64_t k1 = std::min((column + 1) * plan.tile.kv, plan.kv_len);
  int64_t legal = 0;
  int64_t real = 0;
  for (int64_t q = row * plan.tile.q; q < q1; ++q) {
    for (int64_t k = column * plan.tile.kv; k < k1; ++k) {
      legal += legality.legal(b, h, q, k);
      ++real;
    }
  }
  tally.pairs += real;
  ++tally.tiles;
  if (legal == 0) return TileClass::empty;
  return legal == real ? TileClass::full : TileClass::partial;
}

void check_row(const Legality& legality, const Plan& plan, int64_t b, int64_t h,
               int64_t row, Tally& tally) {
  const auto entries = plan.forward.row(plan.list(b, h), row);
  size_t next = 0;
  for (int64_t c = 0; c < plan.forward.columns; ++c) {
    TileClass planned = TileClass::empty;
    if (next < entries.size() && entries[next].column() == c) {
      planned = entries[next++].tile_class();
    }
    const TileClass truth = brute_force(legality, plan, b, h, row, c, tally);
    if (planned == truth) continue;
    if (tally.wrong++ == 0) {
      tally.first_wrong = fmt::format(
          "batch row {}, head {}, tile row {}, column {} is {}, planned {}", b,
          h, row, c, kClassNames[static_cast<int>(truth)],
          kClassNames[static_cast<int>(planned)]);
    }
  }
  if (next != entries.size() && tally.wrong++ == 0) {
    tally.first_wrong = fmt::format(
        "batch row {}, head {}, tile row {} lists a column out of order", b, h,
        row);
  }
}

// The rows to check: all, or a seeded sample of each list.
std::vector<int64_t> rows_to_check(const Plan& plan, int64_t sample,
                                   std::mt19937_64& engine) {
  std::vector<int64_t> rows(static_cast<size_t>(plan.forward.rows));
  for (size_t r = 0; r < rows.size(); ++r) rows[r] = static_cast<int64_t>(r);
  if (sample > 0 && sample < plan.forward.rows) {
    std::shuffle(rows.begin(), rows.end(), engine);
    rows.resize(static_cast<size_t>(sample));
    std::sort(rows.begin(), rows.end());
  }
  return rows;
}

Result<int> run(const Options& o) {
  auto planned = load_planned(o.request);
  if (!planned) return planned.error();
  const Batch& batch = planned->batch;
  const Plan& plan = batch.plan();
  auto sample =
      o.rows ? parse_int(*o.rows, "--rows", 1, plan.forward.rows) : int64_t{0};
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

  const bool progress = isatty(STDERR_FILENO);
  const auto start = std::chrono::steady_clock::now();
  auto last_shown = start;
  std::mt19937_64 engine(*seed);
  Tally tally;
  for (int64_t l = 0; l < plan.forward.lists; ++l) {
    for (const int64_t r : rows_to_check(plan, *sample, engine)) {
      check_row(*legality, plan, l / plan.heads, l % plan.heads, r, tally);
      const auto now = std::chrono::steady_clock::now();
      if (progress && now - last_shown > std::chrono::milliseconds(200)) {
        last_shown = now;
        fmt::print(stderr, "\rchecking: {:.0f} %",
                   100 * static_cast<double>(tally.pairs) / pairs);
        std::fflush(stderr);
      }
    }
  }
  if (progress && last_shown != start) fmt::print(stderr, "\r\033[K");

  // The transposed lists hold the same tiles, or the check above is half one.
  const bool transposed = transpose(plan.transposed) == plan.forward;
  const bool right = tally.wrong == 0 && transposed;
  if (o.json) {
    nlohmann::json out = {{"right", right},
                          {"tiles", tally.tiles},
                          {"pairs", tally.pairs},
                          {"wrong", tally.wrong},
                          {"transposed_agrees", transposed},
                          {"sampled", *sample > 0}};
    if (tally.wrong > 0) out["first_wrong"] = tally.first_wrong;
    fmt::print("{}\n", out.dump());
  } else if (right) {
    fmt::print(
        "right: {} tiles agree with brute force over {} pairs, and the "
        "transposed lists with the forward ones\n",
        tally.tiles, tally.pairs);
  } else {
    fmt::print(
        "wrong: {} of {} tiles; {}\n", tally.wrong, tally.tiles,
        tally.wrong > 0 ? tally.first_wrong : "the transposed lists differ");
  }
  return right ? kOk : kFailed;
}

}  // namespace

Command check_command() {
  auto o = std::make_shared<Options>();
  Command command{"check", "Check the plan against brute force, pair by pair"};
  add_request_flags(command, o->request);
  add_flags(command,
            {
                {"--rows", &o->rows, "N",
                 "Check a random sample of N tile rows of each list [all]"},
                {"--seed", &o->seed, "N", "Of the sample [0]"},
                {"--json", &o->json, "", "One JSON object on stdout"},
            });
  command.footer =
      "Example:\n"
      "  tessera check --mask '(sink(4) | window(63, 0)) & causal & documents' "
      "\\\n"
      "      --q-len 2000 --docs lognormal:mean=300 --tile 64x32\n"
      "\n"
      "Exit code 1 when a class differs.";
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::cli
