// base/nearest.cc: Damerau-Levenshtein distance to each known word.
#include "base/nearest.h"

#include <algorithm>
#include <vector>

namespace tessera {
namespace {

size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1);
  std::vector<size_t> last(b.size() + 1);
  std::vector<size_t> now(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1,
                         last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        now[j] = std::min(now[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

}  // namespace

std::string nearest(std::string_view word,
                    std::span<const std::string_view> known) {
  constexpr size_t kMaxWord = 64;  // a longer word is no typing mistake
  if (word.size() > kMaxWord) return {};
  size_t best = word.size() / 3 + 1;
  std::string_view found;
  for (std::string_view k : known) {
    const size_t d = distance(word, k);
    if (d < best || (d == best && found.empty())) {
      best = d;
      found = k;
    }
  }
  return std::string(found);
}

}  // namespace tessera
