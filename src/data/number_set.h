// data/number_set.h: a set of small integers with fast search downwards: a
// bit per number, and above it bits that mark which words are not zero.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

namespace tessera::data {

// Numbers are 0 to 2^24 at most; four levels of 64-bit words.
class NumberSet {
 public:
  explicit NumberSet(int64_t most) {
    size_t n = static_cast<size_t>(most) + 1;
    for (std::vector<uint64_t>& level : levels_) {
      n = n / 64 + 1;
      level.assign(n, 0);
    }
  }

  void insert(int64_t x) {
    auto at = static_cast<size_t>(x);
    for (std::vector<uint64_t>& level : levels_) {
      uint64_t& word = level[at / 64];
      const bool had = word != 0;
      word |= uint64_t{1} << (at % 64);
      if (had) return;
      at /= 64;
    }
  }

  void erase(int64_t x) {
    auto at = static_cast<size_t>(x);
    for (std::vector<uint64_t>& level : levels_) {
      uint64_t& word = level[at / 64];
      word &= ~(uint64_t{1} << (at % 64));
      if (word != 0) return;
      at /= 64;
    }
  }

  // The greatest member that is x or less; -1 if there is none.
  int64_t at_most(int64_t x) const {
    auto at = static_cast<size_t>(x);
    for (size_t l = 0; l <= kTop; ++l) {
      const uint64_t word =
          levels_[l][at / 64] & (~uint64_t{0} >> (63 - at % 64));
      if (word != 0) {
        at = at / 64 * 64 + 63 - static_cast<size_t>(std::countl_zero(word));
        while (l > 0) {
          --l;
          at = at * 64 + 63 -
               static_cast<size_t>(std::countl_zero(levels_[l][at]));
        }
        return static_cast<int64_t>(at);
      }
      if (at < 64) return -1;
      at = at / 64 - 1;
    }
    return -1;
  }

 private:
  static constexpr size_t kTop = 3;

  std::array<std::vector<uint64_t>, kTop + 1> levels_;
};

}  // namespace tessera::data
