// mask/canonical.h: shared by the parser, the canonical form and the contract.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/mask.h"

namespace tessera::mask {

// Deeper or larger expressions are refused: the planner's stacks are bounded.
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

// Every atom of the language: the parser, the printer and the checks read it.
std::span<const AtomSpec> atom_specs();
const AtomSpec& spec_of(Atom atom);

// How files, errors and programs call the ids of same(a): "same_a".
std::string same_fact(int64_t name);
// same(a), same(b), ... of a set of bits: "ab".
std::string same_letters(uint32_t names);

// -1 (off), 0 and the powers of two: the class of a window bound in keys.
int64_t fold_bound(int64_t bound);

// The text with each window bound replaced by its class.
std::string folded_text(const Expr& expr);

// Exact window bounds in the order of the canonical form.
void append_window_bounds(const Expr& expr, std::vector<int64_t>& bounds);

Expr canonical(const Expr& expr);

// A Mask is a plain struct that anyone can fill: refuses an expression that
// make_mask would refuse, and names that leave out what it names.
Result<void> check_mask(const Mask& mask);

}  // namespace tessera::mask
