// tests/random_tree.h: random prefix trees of every shape.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace tessera::testing {

// Appends `enter` and `leave` of n tokens: a tree or a forest over the first
// `valid` tokens, and any numbers after them.
void append_random_tree(std::mt19937_64& random, int64_t n, int64_t valid,
                        std::vector<int32_t>& enter,
                        std::vector<int32_t>& leave);

// Whether the first n numbers are a tree, judged pair by pair.
bool is_tree(const int32_t* enter, const int32_t* leave, int64_t n);

}  // namespace tessera::testing
