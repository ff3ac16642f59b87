// cli/warm/requests.cc: the requests of `tessera warm`.
#include "cli/warm/requests.h"

#include <fmt/format.h>

#include "base/fail.h"
#include "base/text.h"
#include "request/numbers.h"

namespace tessera::cli {
namespace {

constexpr int64_t kMaxSeeds = int64_t{1} << 20;

}  // namespace

Result<std::vector<request::RequestFlags>> warm_requests(
    const request::RequestFlags& flags, const std::vector<std::string>& specs,
    const std::optional<std::string>& asked_seeds) {
  std::vector<request::RequestFlags> out;
  if (!specs.empty() && flags.spec) {
    return invalid("cli", "--specs stands for --spec, found both");
  }
  if (specs.empty()) out.push_back(flags);
  for (const std::string& spec : specs) {
    out.push_back(flags);
    out.back().spec = spec;
  }
  if (!asked_seeds) return out;
  const auto& docs = flags.docs;
  if (!docs || !docs->starts_with("lognormal") ||
      docs->find("seed=") != docs->npos) {
    return invalid("cli", "--seeds goes with --docs lognormal:mean=N, found {}",
                   docs ? in_quotes(*docs) : "no --docs");
  }
  auto seeds = request::parse_int(*asked_seeds, "--seeds", 1, kMaxSeeds);
  if (!seeds) return seeds.error();
  std::vector<request::RequestFlags> each;
  const std::string join = docs->find(':') == docs->npos ? ":" : ",";
  for (const request::RequestFlags& request : out) {
    for (int64_t seed = 0; seed < *seeds; ++seed) {
      each.push_back(request);
      each.back().docs = fmt::format("{}{}seed={}", *docs, join, seed);
    }
  }
  return each;
}

}  // namespace tessera::cli
