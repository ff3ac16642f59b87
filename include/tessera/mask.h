// tessera/mask.h: the mask language. A mask is a static rule: it holds no data
// of a batch. Text (`causal & window(1023, 0) & documents`) and C++ operators
// build the same expression; make_mask checks it and makes it canonical.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/result.h"

namespace tessera {

// How many id arrays same(a), same(b), ... same(h) can name.
inline constexpr int64_t kSameNames = 8;

enum class Atom : uint8_t {
  full,
  causal,
  window,
  chunk,
  prefix,
  documents,
  segments,
  sink,
  blocks,
  routed,
  tree,
  same,
  // The operators, so that one node type serves atoms and operators.
  op_not,
  op_and,
  op_or,
};

// One node of an expression. `a` and `b` are the atom's arguments: window
// (left, right), chunk(n), sink(n), blocks(n), routed(top, block). For same(a)
// to same(h) `a` is 0 to 7.
struct Expr {
  Atom atom = Atom::full;
  int64_t a = 0;
  int64_t b = 0;
  std::vector<Expr> children;

  bool operator==(const Expr&) const = default;
};

// The names in a mask's expression as it was written. If simplification drops
// a name, the mask still needs its fact, and its veto still applies.
struct Names {
  bool prefix = false;
  bool documents = false;
  bool segments = false;
  bool tree = false;
  uint32_t same = 0;        // bit 0: same(a)
  bool picks = false;       // blocks(n) or routed(...)
  int64_t picks_block = 0;  // n of blocks(n), block of routed(...)

  bool operator==(const Names&) const = default;
};

struct Mask {
  Expr expr;  // canonical
  Names names;

  bool operator==(const Mask&) const = default;
};

// The atoms, for building expressions in C++.
Expr full();
Expr causal();
Expr window(int64_t left, int64_t right);
Expr chunk(int64_t n);
Expr prefix();
Expr documents();
Expr segments();
Expr sink(int64_t n);
Expr blocks(int64_t n);
Expr routed(int64_t top, int64_t block);
Expr tree();
Expr same(char name);  // 'a' to 'h'
Expr operator!(Expr e);
Expr operator&(Expr l, Expr r);
Expr operator|(Expr l, Expr r);

Result<Expr> parse_expr(std::string_view text);
Result<Mask> make_mask(const Expr& expr);
Result<Mask> parse_mask(std::string_view text);  // parse_expr, then make_mask
std::string to_string(const Expr& expr);
std::string to_string(const Mask& mask);

}  // namespace tessera
