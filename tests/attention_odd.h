// tests/attention_odd.h: checks that a NaN or an Inf in an input reaches only
// the outputs that read it, and changes no bit of any other.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "tests/attention_case.h"

namespace tessera::testing {

inline constexpr const char* kOddMasks[] = {
    "causal", "window(9, 4)", "chunk(24)", "!window(6, 6) & causal"};

// Runs a lane forward and backward and checks what it wrote.
using JudgedRun =
    std::function<std::optional<std::string>(AttentionArrays&, const Wanted&)>;

// Puts NaN and Inf into q, k, v and dout of one case, a few at a time.
std::optional<std::string> odd_numbers_fault(const char* mask, Dtype dtype,
                                             const JudgedRun& run,
                                             bool flushes = false);

}  // namespace tessera::testing
