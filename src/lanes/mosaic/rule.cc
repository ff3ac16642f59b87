// lanes/mosaic/rule.cc: reads a canonical expression.
#include "lanes/mosaic/rule.h"

#include <algorithm>

#include "mask/canonical.h"

namespace tessera::mosaic {
namespace {

bool add(const Expr& e, Rule& rule) {
  auto at_least = [&](int64_t d) {
    rule.low = std::max(rule.low.value_or(d), d);
  };
  auto at_most = [&](int64_t d) {
    rule.high = std::min(rule.high.value_or(d), d);
  };
  switch (e.atom) {
    case Atom::full:
      return true;
    case Atom::causal:
      at_most(0);
      return true;
    case Atom::window:
      if (e.a >= 0) at_least(-e.a);
      if (e.b >= 0) at_most(e.b);
      return true;
    case Atom::documents:
      rule.documents = true;
      return true;
    case Atom::segments:
      rule.segments = true;
      return true;
    case Atom::op_and:
      return std::all_of(e.children.begin(), e.children.end(),
                         [&](const Expr& child) { return add(child, rule); });
    default:
      return false;
  }
}

}  // namespace

std::optional<Rule> rule_of(const Mask& mask) {
  Rule rule;
  if (!add(mask.expr, rule)) return {};
  return rule;
}

std::string mask_text(const Request& request) {
  std::string out;
  for (const Mask& mask : request.masks) {
    out += (out.empty() ? "" : "; ") + mask::folded_text(mask.expr);
  }
  return out;
}

}  // namespace tessera::mosaic
