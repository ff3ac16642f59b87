// request/drawn_documents.cc: draws lognormal lengths, equal on all platforms.
#include "request/drawn_documents.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>
#include <set>

#include "base/fail.h"
#include "base/text.h"
#include "request/numbers.h"

namespace tessera::request {

std::vector<int32_t> lognormal_ids(double mean, uint64_t seed, int64_t length) {
  // The standard fixes the engine but not its distributions, which differ
  // between libraries, so Box-Muller is done here.
  std::mt19937_64 engine(seed);
  auto uniform = [&] {  // in (0, 1]
    return (static_cast<double>(engine() >> 11) + 1) * 0x1p-53;
  };
  const double mu = std::log(mean) - 0.5;
  std::vector<int32_t> ids(static_cast<size_t>(length));
  int64_t at = 0;
  for (int32_t id = 0; at < length; ++id) {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    const double z = radius * std::cos(2 * std::numbers::pi * uniform());
    const double drawn = std::floor(std::exp(mu + z));
    const auto left = static_cast<double>(length - at);
    const auto n = static_cast<int64_t>(std::clamp(drawn, 1.0, left));
    std::fill_n(ids.begin() + at, n, id);
    at += n;
  }
  return ids;
}

Result<std::vector<int32_t>> draw_documents(std::string_view arguments,
                                            std::string_view what,
                                            int64_t batch, int64_t length) {
  double mean = 2048;
  int64_t seed = 0;
  std::set<std::string_view> seen;
  for (std::string_view part : split(arguments, ',')) {
    if (part.empty() && arguments.empty()) break;
    const std::string_view name = part.substr(0, part.find('='));
    if (take_prefix(part, "mean=")) {
      auto m = parse_positive(part, fmt::format("{} mean", what));
      if (!m) return m.error();
      mean = *m;
    } else if (take_prefix(part, "seed=")) {
      auto s =
          parse_int(part, fmt::format("{} seed", what), 0, int64_t{1} << 62);
      if (!s) return s.error();
      seed = *s;
    } else {
      return invalid("docs", "{} lognormal takes mean=N and seed=N, found {}",
                     what, in_quotes(part));
    }
    auto e = take_once(seen, name, "docs", fmt::format("{} lognormal", what));
    if (!e) return e.error();
  }
  std::vector<int32_t> all;
  for (int64_t b = 0; b < batch; ++b) {
    const std::vector<int32_t> row =
        lognormal_ids(mean, static_cast<uint64_t>(seed + b), length);
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

}  // namespace tessera::request
