// tests/random_tree.h: prefix trees of every shape, from a seed.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace tessera::testing {

// A tree, or a forest, over the first `valid` of n tokens: appends enter and
// leave of n tokens. What stands behind `valid` is any number.
void append_random_tree(std::mt19937_64& random, int64_t n, int64_t valid,
                        std::vector<int32_t>& enter,
                        std::vector<int32_t>& leave);

// Whether the first n numbers are a tree, judged pair by pair.
bool is_tree(const int32_t* enter, const int32_t* leave, int64_t n);

}  // namespace tessera::testing
