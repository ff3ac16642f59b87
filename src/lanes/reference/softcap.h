// lanes/reference/softcap.h: the capped score, and its slope by the score.
#pragma once

#include <cmath>

namespace tessera::reference {

inline double capped(double score, double softcap) {
  return softcap == 0 ? score : softcap * std::tanh(score / softcap);
}

inline double cap_slope(double score, double softcap) {
  if (softcap == 0) return 1;
  const double sech = 1 / std::cosh(score / softcap);
  return sech * sech;
}

}  // namespace tessera::reference
