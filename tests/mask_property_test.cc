// tests/mask_property_test.cc: random expressions through the printer, the
// parser and the canonical form; the oracle judges their meaning.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tessera/mask.h"
#include "tests/oracle.h"
#include "tests/random_case.h"

namespace tessera::testing {
namespace {

constexpr int kDepth = 4;

Expr parsed(std::string_view text) {
  const Result<Expr> e = parse_expr(text);
  EXPECT_TRUE(e.ok()) << text << ": " << (e.ok() ? "" : e.error().message);
  return e.ok() ? *e : Expr{};
}

Expr canonical_of(const Expr& e) {
  const Result<Mask> mask = make_mask(e);
  EXPECT_TRUE(mask.ok()) << spell(e);
  return mask.ok() ? mask->expr : Expr{};
}

// Calls `check` with many random expressions; a failure names the seed.
template <class Check>
void for_expressions(int64_t n, Check check) {
  const uint64_t first = first_seed(1);
  for (int64_t at = 0; at < case_count(n); ++at) {
    const uint64_t seed = first + static_cast<uint64_t>(at);
    std::mt19937_64 random(seed);
    const Expr e = random_expr(random, kDepth, 16);
    SCOPED_TRACE("TESSERA_SEED=" + std::to_string(seed) + ": " + spell(e));
    check(e, random);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(MaskProperty, PrintedExpressionsParseBackToTheSameTree) {
  for_expressions(3000, [](const Expr& e, auto&) {
    EXPECT_EQ(parsed(to_string(e)), e) << to_string(e);
  });
}

// Removing any one pair of parentheses changes the tree or breaks the text.
TEST(MaskProperty, NoPrintedParenthesesAreIdle) {
  for_expressions(1000, [](const Expr& e, auto&) {
    const std::string text = to_string(e);
    std::vector<size_t> open;
    for (size_t at = 0; at < text.size(); ++at) {
      if (text[at] == '(') open.push_back(at);
      if (text[at] != ')') continue;
      const size_t begin = open.back();
      open.pop_back();
      std::string without = text;
      without[begin] = ' ';
      without[at] = ' ';
      const Result<Expr> other = parse_expr(without);
      EXPECT_FALSE(other.ok() && *other == e) << text << "\n" << without;
    }
  });
}

// Text with parentheses everywhere parses to the same tree.
TEST(MaskProperty, FullyParenthesisedTextIsTheSameTree) {
  for_expressions(1000, [](const Expr& e, auto&) {
    EXPECT_EQ(parsed(spell(e)), e);
    EXPECT_EQ(parsed("((" + spell(e) + "))"), e);
  });
}

TEST(MaskProperty, SpaceBetweenTokensMeansNothing) {
  for_expressions(1000, [](const Expr& e, auto& random) {
    const std::string text = to_string(e);
    std::string loose, tight;
    const auto spaces = [&random]() {
      static constexpr const char* some[] = {"",   " ",   "  ",
                                             "\t", " \n", "\r\n"};
      return std::string(some[random() % 6]);
    };
    for (size_t at = 0; at < text.size(); ++at) {
      const char c = text[at];
      if (c == ' ') continue;
      tight += c;
      const bool symbol = std::string("()!&|,=").find(c) != std::string::npos;
      if (symbol) loose += spaces();
      loose += c;
      if (symbol) loose += spaces();
    }
    EXPECT_EQ(parsed(tight), e) << tight;
    EXPECT_EQ(parsed(spaces() + loose + spaces()), e) << loose;
  });
}

TEST(MaskProperty, NotBindsTightestThenAndThenOr) {
  EXPECT_EQ(parsed("causal | prefix & documents"),
            causal() | (prefix() & documents()));
  EXPECT_EQ(parsed("causal & prefix | documents"),
            (causal() & prefix()) | documents());
  EXPECT_EQ(parsed("!causal & prefix"), (!causal()) & prefix());
  EXPECT_EQ(parsed("!causal | prefix"), (!causal()) | prefix());
  EXPECT_EQ(parsed("!(causal & prefix)"), !(causal() & prefix()));
  EXPECT_EQ(parsed("(causal | prefix) & documents"),
            (causal() | prefix()) & documents());
  EXPECT_EQ(parsed("!!causal"), !!causal());
}

TEST(MaskProperty, CanonicalFormIsIdempotent) {
  for_expressions(3000, [](const Expr& e, auto&) {
    const Expr once = canonical_of(e);
    EXPECT_EQ(canonical_of(once), once);
    EXPECT_EQ(canonical_of(parsed(to_string(once))), once);
  });
}

TEST(MaskProperty, NamesAreJudgedAsWritten) {
  for_expressions(3000, [](const Expr& e, auto&) {
    const Result<Mask> mask = make_mask(e);
    ASSERT_TRUE(mask.ok());
    EXPECT_EQ(mask->names.prefix, names_atom(e, Atom::prefix));
    EXPECT_EQ(mask->names.documents, names_atom(e, Atom::documents));
    EXPECT_EQ(mask->names.segments, names_atom(e, Atom::segments));
    EXPECT_EQ(mask->names.same != 0, names_atom(e, Atom::same));
    EXPECT_EQ(mask->names.picks, names_picks(e));
    EXPECT_EQ(mask->names.picks_block, names_picks(e) ? 16 : 0);
  });
}

// Whether `e` is flattened and sorted, and has no double negation, no
// duplicates and no `full` or `!full` below an operator.
bool is_canonical(const Expr& e, bool root) {
  if (!root && e.atom == Atom::full) return false;
  if (e.atom == Atom::op_not) {
    const Expr& child = e.children[0];
    if (child.atom == Atom::op_not) return false;
    if (child.atom == Atom::full) return root;
    return is_canonical(child, false);
  }
  for (size_t i = 0; i < e.children.size(); ++i) {
    if (e.children[i].atom == e.atom) return false;
    if (!is_canonical(e.children[i], false)) return false;
    for (size_t j = 0; j < i; ++j) {
      if (e.children[j] == e.children[i]) return false;
    }
  }
  return e.children.empty() || e.children.size() >= 2;
}

TEST(MaskProperty, CanonicalFormIsFlatAndHasNothingIdle) {
  for_expressions(3000, [](const Expr& e, auto&) {
    EXPECT_TRUE(is_canonical(canonical_of(e), true)) << spell(canonical_of(e));
  });
}

TEST(MaskProperty, OrderDuplicatesAndNegationPairsDoNotMatter) {
  for_expressions(1000, [](const Expr& e, auto& random) {
    const Expr other = random_expr(random, kDepth, 16);
    const Expr third = random_expr(random, kDepth, 16);
    EXPECT_EQ(canonical_of(e & other), canonical_of(other & e));
    EXPECT_EQ(canonical_of(e | other), canonical_of(other | e));
    EXPECT_EQ(canonical_of((e & other) & third),
              canonical_of(e & (third & other)));
    EXPECT_EQ(canonical_of((e | other) | third),
              canonical_of(e | (third | other)));
    EXPECT_EQ(canonical_of(e & e), canonical_of(e));
    EXPECT_EQ(canonical_of(e | e), canonical_of(e));
    EXPECT_EQ(canonical_of(!!e), canonical_of(e));
    EXPECT_EQ(canonical_of(e & full()), canonical_of(e));
    EXPECT_EQ(canonical_of(e | !full()), canonical_of(e));
    EXPECT_EQ(canonical_of(e | full()), full());
    EXPECT_EQ(canonical_of(e & !full()), !full());
  });
}

TEST(MaskProperty, CanonicalFormIsNotCleverer) {
  for (const char* text :
       {"causal & !causal", "causal | !causal", "window(-1, -1)",
        "causal & window(-1, 0)", "!(causal & prefix)", "chunk(1) & chunk(2)",
        "causal & (causal | prefix)", "documents & segments"}) {
    EXPECT_NE(canonical_of(parsed(text)), full()) << text;
    EXPECT_NE(canonical_of(parsed(text)), !full()) << text;
    EXPECT_EQ(to_string(canonical_of(parsed(text))).size(),
              std::string_view(text).size())
        << text;
  }
}

// The canonical form has the meaning of the expression. If it drops a name, the
// flags of the mask still have it, so `full | atom` is added for the oracle.
TEST(MaskProperty, CanonicalFormKeepsTheMeaning) {
  const uint64_t first = first_seed(1);
  for (int64_t at = 0; at < case_count(600); ++at) {
    const RandomCase c = random_case(first + static_cast<uint64_t>(at));
    RandomCase folded = c;
    for (Expr& e : folded.masks) {
      const Result<Mask> mask = make_mask(e);
      ASSERT_TRUE(mask.ok()) << describe(c);
      e = mask->expr;
      if (mask->names.documents) e = e & (full() | documents());
      if (mask->names.segments) e = e & (full() | segments());
      if (mask->names.tree) e = e & (full() | tree());
      if (mask->names.same & 1) e = e & (full() | same('a'));
      if (mask->names.picks) e = e & (full() | blocks(mask->names.picks_block));
    }
    const Facts facts = c.facts();
    const Oracle written(c.masks, c.shape(), facts);
    const Oracle canonical(folded.masks, folded.shape(), facts);
    ASSERT_EQ(written.heads(), canonical.heads()) << describe(c);
    for (int64_t b = 0; b < c.batch; ++b) {
      for (int64_t h = 0; h < written.heads(); ++h) {
        for (int64_t i = 0; i < c.q_len; ++i) {
          for (int64_t j = 0; j < c.kv_len; ++j) {
            ASSERT_EQ(written.legal(b, h, i, j), canonical.legal(b, h, i, j))
                << describe(c) << describe(folded) << "batch row " << b
                << ", head " << h << ", query " << i << ", key " << j;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::testing
