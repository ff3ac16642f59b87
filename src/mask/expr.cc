// mask/expr.cc: builds, checks, prints and canonicalizes masks.
#include <algorithm>
#include <array>
#include <bit>

#include "base/fail.h"
#include "mask/canonical.h"

namespace tessera::mask {
namespace {

bool is_operator(Atom atom) { return atom >= Atom::op_not; }

int precedence(Atom atom) {
  if (atom == Atom::op_or) return 0;
  if (atom == Atom::op_and) return 1;
  return atom == Atom::op_not ? 2 : 3;
}

std::string atom_text(const Expr& e, bool folded) {
  const AtomSpec& spec = spec_of(e.atom);
  if (spec.arguments.empty()) return std::string(spec.name);
  if (e.atom == Atom::same) {
    return fmt::format("same({})", static_cast<char>('a' + e.a));
  }
  if (e.atom == Atom::routed) {
    return fmt::format("routed(top={}, block={})", e.a, e.b);
  }
  if (e.atom == Atom::window) {
    return folded
               ? fmt::format("window({}, {})", fold_bound(e.a), fold_bound(e.b))
               : fmt::format("window({}, {})", e.a, e.b);
  }
  return fmt::format("{}({})", spec.name, e.a);
}

void append_text(const Expr& e, bool folded, std::string& out) {
  if (!is_operator(e.atom)) {
    out += atom_text(e, folded);
    return;
  }
  auto append_child = [&](const Expr& child) {
    // A child of equal precedence keeps its parentheses, as in the tree.
    const bool wrap = is_operator(child.atom) && e.atom != Atom::op_not
                          ? precedence(child.atom) <= precedence(e.atom)
                          : precedence(child.atom) < precedence(e.atom);
    if (wrap) out += '(';
    append_text(child, folded, out);
    if (wrap) out += ')';
  };
  if (e.atom == Atom::op_not) {
    out += '!';
    append_child(e.children[0]);
    return;
  }
  for (size_t i = 0; i < e.children.size(); ++i) {
    if (i > 0) out += e.atom == Atom::op_and ? " & " : " | ";
    append_child(e.children[i]);
  }
}

std::string text_of(const Expr& e, bool folded) {
  std::string out;
  append_text(e, folded, out);
  return out;
}

Expr make_atom(Atom atom, int64_t a = 0, int64_t b = 0) {
  return Expr{atom, a, b, {}};
}

Expr make_binary(Atom op, Expr l, Expr r) {
  // A chain a & b & c is one node, as in the parser.
  Expr e{op, 0, 0, {}};
  if (l.atom == op) {
    e = std::move(l);
  } else {
    e.children.push_back(std::move(l));
  }
  e.children.push_back(std::move(r));
  return e;
}

bool is_full(const Expr& e) { return e.atom == Atom::full; }
bool is_not_full(const Expr& e) {
  return e.atom == Atom::op_not && is_full(e.children[0]);
}

// Checks one node and its children, and collects their names.
Result<void> check(const Expr& e, int depth, int& nodes, Names& names) {
  if (depth > kMaxExprDepth) {
    return over_limit("mask", "nesting must be at most {}, found a deeper one",
                      kMaxExprDepth);
  }
  if (++nodes > kMaxExprNodes) {
    return over_limit("mask",
                      "an expression holds at most {} terms, found more",
                      kMaxExprNodes);
  }
  if (is_operator(e.atom)) {
    const bool negation = e.atom == Atom::op_not;
    if (negation ? e.children.size() != 1 : e.children.size() < 2) {
      return invalid("mask", "an operator needs {}, found {} operands",
                     negation ? "one operand" : "two operands or more",
                     e.children.size());
    }
    for (const Expr& child : e.children) {
      if (auto r = check(child, depth + 1, nodes, names); !r) return r;
    }
    return {};
  }
  if (e.atom > Atom::op_or) {
    return invalid("mask", "atom must be one that exists, found number {}",
                   static_cast<int>(e.atom));
  }
  if (!e.children.empty()) {
    return invalid("mask", "an atom has no operands, found {} for {}",
                   e.children.size(), spec_of(e.atom).name);
  }
  const AtomSpec& spec = spec_of(e.atom);
  if (e.atom == Atom::same && (e.a < 0 || e.a >= kSameNames)) {
    return invalid("mask", "same takes a letter from a to {}, found number {}",
                   static_cast<char>('a' + kSameNames - 1), e.a);
  }
  const std::array<int64_t, 2> values = {e.a, e.b};
  for (size_t i = 0; i < spec.arguments.size(); ++i) {
    if (values[i] < spec.least || values[i] > kMaxArgument) {
      return invalid("mask", "{} must be from {} to {}, found {} for {}",
                     spec.arguments[i], spec.least, kMaxArgument, values[i],
                     spec.name);
    }
  }
  for (size_t i = spec.arguments.size(); i < 2; ++i) {
    if (values[i] != 0) {
      return invalid("mask", "{} takes {} arguments, found {} for one more",
                     spec.name, spec.arguments.size(), values[i]);
    }
  }
  if (e.atom == Atom::same) names.same |= 1U << e.a;
  if (e.atom == Atom::prefix) names.prefix = true;
  if (e.atom == Atom::documents) names.documents = true;
  if (e.atom == Atom::segments) names.segments = true;
  if (e.atom == Atom::tree) names.tree = true;
  if (e.atom == Atom::blocks || e.atom == Atom::routed) {
    const int64_t block = e.atom == Atom::blocks ? e.a : e.b;
    if (names.picks && names.picks_block != block) {
      return invalid("mask",
                     "blocks and routed share the picks, so one block size, "
                     "found {} and {}",
                     names.picks_block, block);
    }
    names.picks = true;
    names.picks_block = block;
  }
  return {};
}

}  // namespace

std::span<const AtomSpec> atom_specs() {
  static const std::array<AtomSpec, 12> specs = {{
      {Atom::full, "full", {}, 0},
      {Atom::causal, "causal", {}, 0},
      {Atom::window, "window", {"left", "right"}, -1},
      {Atom::chunk, "chunk", {"n"}, 1},
      {Atom::prefix, "prefix", {}, 0},
      {Atom::documents, "documents", {}, 0},
      {Atom::segments, "segments", {}, 0},
      {Atom::sink, "sink", {"n"}, 0},
      {Atom::blocks, "blocks", {"n"}, 1},
      {Atom::routed, "routed", {"top", "block"}, 1},
      {Atom::tree, "tree", {}, 0},
      {Atom::same, "same", {"name"}, 0},
  }};
  return specs;
}

const AtomSpec& spec_of(Atom atom) {
  return atom_specs()[static_cast<size_t>(atom)];
}

std::string same_fact(int64_t name) {
  return std::string("same_") + static_cast<char>('a' + name);
}

std::string same_letters(uint32_t names) {
  std::string out;
  for (int64_t i = 0; i < kSameNames; ++i) {
    if (names >> i & 1) out += static_cast<char>('a' + i);
  }
  return out;
}

int64_t fold_bound(int64_t bound) {
  if (bound <= 0) return bound;
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bound)));
}

std::string folded_text(const Expr& expr) { return text_of(expr, true); }

void append_window_bounds(const Expr& expr, std::vector<int64_t>& bounds) {
  if (expr.atom == Atom::window) {
    bounds.push_back(expr.a);
    bounds.push_back(expr.b);
  }
  for (const Expr& child : expr.children) append_window_bounds(child, bounds);
}

Expr canonical(const Expr& expr) {
  if (!is_operator(expr.atom)) return expr;
  if (expr.atom == Atom::op_not) {
    Expr child = canonical(expr.children[0]);
    if (child.atom == Atom::op_not) return std::move(child.children[0]);
    return Expr{Atom::op_not, 0, 0, {std::move(child)}};
  }
  const bool conjunction = expr.atom == Atom::op_and;
  std::vector<Expr> terms;
  for (const Expr& child : expr.children) {
    Expr c = canonical(child);
    if (c.atom == expr.atom) {
      std::move(c.children.begin(), c.children.end(),
                std::back_inserter(terms));
      continue;
    }
    terms.push_back(std::move(c));
  }
  // `full` is neutral to & and absorbs |; `!full` the other way round.
  auto neutral = conjunction ? is_full : is_not_full;
  auto absorbing = conjunction ? is_not_full : is_full;
  if (auto it = std::find_if(terms.begin(), terms.end(), absorbing);
      it != terms.end()) {
    return *it;
  }
  Expr identity = conjunction ? full() : !full();
  std::erase_if(terms, neutral);
  // Sorted by the folded text first, so that two masks of one contract list
  // their window bounds in the same order.
  std::sort(terms.begin(), terms.end(), [](const Expr& l, const Expr& r) {
    const std::string fl = folded_text(l);
    const std::string fr = folded_text(r);
    return fl != fr ? fl < fr : to_string(l) < to_string(r);
  });
  terms.erase(std::unique(terms.begin(), terms.end()), terms.end());
  if (terms.empty()) return identity;
  if (terms.size() == 1) return std::move(terms[0]);
  return Expr{expr.atom, 0, 0, std::move(terms)};
}

Result<void> check_mask(const Mask& mask) {
  Names found;
  int nodes = 0;
  if (auto r = check(mask.expr, 1, nodes, found); !r) return r;
  const Names& names = mask.names;
  const std::pair<bool, std::string_view> missing[] = {
      {found.prefix && !names.prefix, "prefix"},
      {found.documents && !names.documents, "documents"},
      {found.segments && !names.segments, "segments"},
      {found.tree && !names.tree, "tree"},
      {(found.same & ~names.same) != 0, "same"},
      {found.picks && !names.picks, "picks"},
  };
  for (const auto& [is_missing, name] : missing) {
    if (is_missing) {
      return invalid("mask",
                     "names must hold all that the expression names, found no "
                     "{} for {}",
                     name, to_string(mask.expr));
    }
  }
  if (names.same >> kSameNames != 0) {
    return invalid("mask", "same has {} names, found one more", kSameNames);
  }
  if (!names.picks) return {};
  if (found.picks && names.picks_block != found.picks_block) {
    return invalid("mask",
                   "names must hold the block of the picks, found {} for {}",
                   names.picks_block, to_string(mask.expr));
  }
  if (names.picks_block < 1 || names.picks_block > kMaxArgument) {
    return invalid("mask", "block of the picks must be from 1 to {}, found {}",
                   kMaxArgument, names.picks_block);
  }
  return {};
}

}  // namespace tessera::mask

namespace tessera {

Expr full() { return mask::make_atom(Atom::full); }

Expr causal() { return mask::make_atom(Atom::causal); }

Expr window(int64_t left, int64_t right) {
  return mask::make_atom(Atom::window, left, right);
}

Expr chunk(int64_t n) { return mask::make_atom(Atom::chunk, n); }

Expr prefix() { return mask::make_atom(Atom::prefix); }

Expr documents() { return mask::make_atom(Atom::documents); }

Expr segments() { return mask::make_atom(Atom::segments); }

Expr sink(int64_t n) { return mask::make_atom(Atom::sink, n); }

Expr blocks(int64_t n) { return mask::make_atom(Atom::blocks, n); }

Expr routed(int64_t top, int64_t block) {
  return mask::make_atom(Atom::routed, top, block);
}

Expr tree() { return mask::make_atom(Atom::tree); }

// make_mask refuses any other character.
Expr same(char name) {
  const int64_t number = static_cast<unsigned char>(name) - int64_t{'a'};
  return mask::make_atom(Atom::same, number);
}

Expr operator&(Expr l, Expr r) {
  return mask::make_binary(Atom::op_and, std::move(l), std::move(r));
}

Expr operator|(Expr l, Expr r) {
  return mask::make_binary(Atom::op_or, std::move(l), std::move(r));
}

Expr operator!(Expr e) {
  Expr n{Atom::op_not, 0, 0, {}};
  n.children.push_back(std::move(e));
  return n;
}

Result<Mask> make_mask(const Expr& expr) {
  Mask mask;
  int nodes = 0;
  if (auto r = mask::check(expr, 1, nodes, mask.names); !r) return r.error();
  mask.expr = mask::canonical(expr);
  return mask;
}

std::string to_string(const Expr& expr) { return mask::text_of(expr, false); }

std::string to_string(const Mask& mask) { return to_string(mask.expr); }

}  // namespace tessera
