// mask/canonical.h: expression limits and helpers shared by the parser, the
// canonical form and the contract.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/mask.h"

namespace tessera::mask {

// Deeper or larger expressions are refused, which bounds the planner's stacks.
inline constexpr int kMaxExprDepth = 64;
inline constexpr int kMaxExprNodes = 4096;
// Arguments are int32 on the device.
inline constexpr int64_t kMaxArgument = INT32_MAX;

struct AtomSpec {
  Atom atom;
  std::string_view name;
  std::vector<std::string_view> arguments;
  int64_t least;  // each argument's lower bound
};

// Every atom of the language, for the parser, the printer and the checks.
std::span<const AtomSpec> atom_specs();
const AtomSpec& spec_of(Atom atom);

// The name of the ids of same(a) in files, errors and programs: "same_a".
std::string same_fact(int64_t name);
// The letters of same(a), same(b), ... in a bit set: "ab".
std::string same_letters(uint32_t names);

// The class of a window bound in keys: -1 (off), 0 or a power of two.
int64_t fold_bound(int64_t bound);

// The text with each window bound replaced by its class.
std::string folded_text(const Expr& expr);

// Exact window bounds in the order of the canonical form.
void append_window_bounds(const Expr& expr, std::vector<int64_t>& bounds);

Expr canonical(const Expr& expr);

// Refuses an expression that make_mask would refuse, and names that leave out a
// name of the expression. Any caller can fill a Mask, which is a plain struct.
Result<void> check_mask(const Mask& mask);

}  // namespace tessera::mask
