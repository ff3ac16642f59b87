// mask/program.cc: compiles a mask to a postfix program over bands.
#include "mask/program.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/fail.h"
#include "mask/canonical.h"

namespace tessera::mask {
namespace {

constexpr size_t kMaxThresholds = 63;
constexpr size_t kMaxKeyAtoms = 64;
constexpr size_t kTableBits = 8;

bool depends_on_distance(Atom atom) {
  return atom == Atom::full || atom == Atom::causal || atom == Atom::window;
}

// The distances that an atom allows: [begin, end).
struct Distances {
  int64_t begin = -kFar;
  int64_t end = kFar;
};

Distances distances_of(const Expr& e) {
  if (e.atom == Atom::causal) return {-kFar, 1};
  if (e.atom == Atom::window) {
    return {e.a < 0 ? -kFar : -e.a, e.b < 0 ? kFar : e.b + 1};
  }
  return {};
}

constexpr KeyAtom kTree[] = {{Atom::tree, 0}, {Atom::tree, 1}};

KeyAtom key_atom(const Expr& e) {
  // A router's picks and given picks are the same fact.
  if (e.atom == Atom::routed) return {Atom::blocks, e.b};
  return {e.atom, e.a};
}

void add_key(const KeyAtom& k, Program& program) {
  if (std::find(program.keys.begin(), program.keys.end(), k) ==
      program.keys.end()) {
    program.keys.push_back(k);
  }
}

void collect(const Expr& e, Program& program) {
  for (const Expr& child : e.children) collect(child, program);
  if (e.atom >= Atom::op_not) return;
  if (e.atom == Atom::tree) {
    collect(causal(), program);
    for (const KeyAtom& k : kTree) add_key(k, program);
    return;
  }
  if (depends_on_distance(e.atom)) {
    const Distances d = distances_of(e);
    if (d.begin > -kFar) program.thresholds.push_back(d.begin);
    if (d.end < kFar) program.thresholds.push_back(d.end);
    return;
  }
  add_key(key_atom(e), program);
}

void append_key(const KeyAtom& k, Program& program) {
  const auto it = std::find(program.keys.begin(), program.keys.end(), k);
  program.ops.push_back(
      {Program::Op::key, static_cast<uint64_t>(it - program.keys.begin())});
}

void append_ops(const Expr& e, Program& program) {
  using Op = Program::Op;
  for (const Expr& child : e.children) append_ops(child, program);
  switch (e.atom) {
    case Atom::op_not:
      program.ops.push_back({Op::op_not, 1});
      return;
    case Atom::op_and:
      program.ops.push_back({Op::op_and, e.children.size()});
      return;
    case Atom::op_or:
      program.ops.push_back({Op::op_or, e.children.size()});
      return;
    case Atom::tree:
      append_ops(causal(), program);
      for (const KeyAtom& k : kTree) append_key(k, program);
      program.ops.push_back({Op::op_or, 2});
      program.ops.push_back({Op::op_and, 2});
      return;
    default:
      break;
  }
  if (depends_on_distance(e.atom)) {
    const Distances d = distances_of(e);
    uint64_t bands = 0;
    for (int j = 0; j <= static_cast<int>(program.thresholds.size()); ++j) {
      if (program.band_begin(j) >= d.begin && program.band_end(j) <= d.end) {
        bands |= uint64_t{1} << j;
      }
    }
    program.ops.push_back({Op::bands, bands});
    return;
  }
  append_key(key_atom(e), program);
}

}  // namespace

uint64_t Program::evaluate(uint64_t state) const {
  // An n-ary operator needs all its operands on the stack. So the stack may
  // hold every term of the mask; a tree term takes three entries.
  std::array<uint64_t, kMaxExprNodes + 2> stack;
  size_t top = 0;
  for (const Op& op : ops) {
    switch (op.kind) {
      case Op::bands:
        stack[top++] = op.value;
        break;
      case Op::key:
        stack[top++] = state >> op.value & 1 ? all_bands() : 0;
        break;
      case Op::op_not:
        stack[top - 1] = ~stack[top - 1] & all_bands();
        break;
      case Op::op_and:
      case Op::op_or:
        for (uint64_t i = 1; i < op.value; ++i) {
          --top;
          stack[top - 1] = op.kind == Op::op_and ? stack[top - 1] & stack[top]
                                                 : stack[top - 1] | stack[top];
        }
        break;
    }
  }
  return stack[0];
}

Result<Program> compile(const Mask& mask) {
  Program program;
  program.names = mask.names;
  collect(mask.expr, program);
  std::vector<int64_t>& t = program.thresholds;
  std::sort(t.begin(), t.end());
  t.erase(std::unique(t.begin(), t.end()), t.end());
  if (t.size() > kMaxThresholds) {
    return over_limit(
        "mask", "a mask holds at most {} distinct window bounds, found {}",
        kMaxThresholds, t.size());
  }
  if (program.keys.size() > kMaxKeyAtoms) {
    return over_limit("mask",
                      "a mask holds at most {} distinct atoms that depend on "
                      "the key, found {}",
                      kMaxKeyAtoms, program.keys.size());
  }
  append_ops(mask.expr, program);
  uint64_t reachable = program.all_bands();
  if (program.keys.size() <= kTableBits) {
    reachable = 0;
    const uint64_t states = uint64_t{1} << program.keys.size();
    for (uint64_t state = 0; state < states; ++state) {
      program.table.push_back(program.evaluate(state));
      reachable |= program.table.back();
    }
  }
  if (reachable == 0) {
    program.reach_begin = program.reach_end = 0;
  } else {
    program.reach_begin = program.band_begin(std::countr_zero(reachable));
    program.reach_end = program.band_end(63 - std::countl_zero(reachable));
  }
  return program;
}

}  // namespace tessera::mask
