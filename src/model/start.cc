// model/start.cc: normal draws, seeded by the parameter's name and the seed.
#include "model/start.h"

#include <cmath>
#include <random>

#include "base/digest.h"

namespace tessera::model {

std::vector<float> start_values(const ModelParameter& p, uint64_t seed) {
  std::vector<float> out(static_cast<size_t>(p.size()),
                         static_cast<float>(p.fill));
  if (p.deviation == 0) return out;
  Digest digest;
  digest.add(p.name.data(), p.name.size());
  digest.add(static_cast<int64_t>(seed));
  std::mt19937_64 random(std::stoull(digest.hex().substr(0, 16), nullptr, 16));
  // The C++ standard fixes the numbers of the generator, not of distributions.
  const auto uniform = [&] {
    return (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53;
  };
  const double turn = 2 * std::acos(-1.0);
  for (size_t i = 0; i < out.size(); i += 2) {
    const double radius = p.deviation * std::sqrt(-2 * std::log(uniform()));
    const double angle = turn * uniform();
    out[i] += static_cast<float>(radius * std::cos(angle));
    if (i + 1 < out.size()) {
      out[i + 1] += static_cast<float>(radius * std::sin(angle));
    }
  }
  return out;
}

}  // namespace tessera::model
