// model/rope.cc: the angle of pair i is theta^(-2 i / dim), i below dim / 2.
// Llama 3's scaling: a pair makes n = rope_tokens angle / (2 pi) turns. For n
// below rope_low the angle is divided by the factor; for n above rope_high it
// is kept. In between, the share of the angle that is kept rises from 0 to 1.
#include "model/rope.h"

#include <algorithm>
#include <cmath>

namespace tessera::model {

std::vector<double> rope_steps(const ModelConfig& m) {
  const int64_t half = m.head_dim / 2;
  const double turn = 2 * std::acos(-1.0);
  std::vector<double> out;
  out.reserve(static_cast<size_t>(half));
  for (int64_t i = 0; i < half; ++i) {
    double step = std::pow(m.rope_theta,
                           -static_cast<double>(i) / static_cast<double>(half));
    if (m.rope_factor > 1) {
      const double n = m.rope_tokens * step / turn;
      const double kept =
          std::clamp((n - m.rope_low) / (m.rope_high - m.rope_low), 0.0, 1.0);
      step *= kept + (1 - kept) / m.rope_factor;
    }
    out.push_back(step);
  }
  return out;
}

}  // namespace tessera::model
