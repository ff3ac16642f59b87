// tessera/legal.h: legality of one (query, key) pair, straight from the
// definitions. Slow and plain on purpose: brute force, explanations and the
// reference lane read it; the planner never does.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/facts.h"
#include "tessera/plan.h"
#include "tessera/result.h"

namespace tessera {

struct ExplainStep {
  int64_t depth = 0;  // in the expression tree
  std::string text;   // "causal"
  bool holds = false;
  std::string why;  // "key 7 <= position 9"
};

struct Explanation {
  bool legal = false;
  std::vector<ExplainStep> expression;  // root first
  std::vector<ExplainStep> vetoes;      // `holds`: the veto forbids the pair
  int64_t position = 0;
  int64_t tile_row = 0;
  int64_t tile_column = 0;
};

// A request bound to validated facts. Holds O(tokens) of derived arrays and
// views of the facts, which must outlive it.
class Legality {
 public:
  static Result<Legality> bind(const Request& request, const Facts& facts);
  Legality(Legality&&) noexcept;
  Legality& operator=(Legality&&) noexcept;
  ~Legality();

  int64_t heads() const;  // plan heads
  bool legal(int64_t batch_row, int64_t head, int64_t q, int64_t k) const;
  Explanation explain(int64_t batch_row, int64_t head, int64_t q,
                      int64_t k) const;

 private:
  struct State;
  explicit Legality(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tessera
