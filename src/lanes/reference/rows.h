// lanes/reference/rows.h: single rows of attention in fp64, by its definition
// (lanes/reference/reference.h). Each element has the error that a lane may
// have in fp32. Reads tensors of any layout, a row at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "lanes/reference/bound.h"
#include "tessera/attention.h"
#include "tessera/plan.h"

namespace tessera::reference {

// Elements of one row with their errors, without the final cast.
struct RowValues {
  std::vector<double> value, error;

  void reset(int64_t n) {
    value.assign(static_cast<size_t>(n), 0);
    error.assign(static_cast<size_t>(n), 0);
  }
};

// One query of one head, with what its gradient needs for every legal key.
struct QueryRow {
  int64_t b = 0, h = 0, q = 0;
  std::vector<int64_t> keys;
  RowFacts facts;
  std::vector<double> probability;
  std::vector<double> score;  // before the cap
  double sink_probability = 0;
  Expected lse;
  RowValues out;
};

// What one query row adds to gradients: its dq, and terms of dk, dv and dsink.
struct QueryGradient {
  RowValues dq;
  RowValues weight;  // p_j: dv = sum p_j dout
  RowValues ds;      // dk = sum scale ds_j q
  Expected sink;
};

class RowOracle {
 public:
  // Reads q, k, v, sink_logits and, for gradients, dout and dlse. `out` and
  // `lse` are read only where a function says so. Views must outlive this.
  static Result<RowOracle> bind(const Request& request, const Facts& facts,
                                const AttentionShape& shape,
                                const ForwardTensors& tensors,
                                const Gradients& gradients = {},
                                bool flushes = false, bool rounded_sum = false);

  void forward(int64_t b, int64_t h, int64_t q, QueryRow& row);
  // `row` must have been filled by forward().
  void backward(const QueryRow& row, QueryGradient& gradient);

  // dk and dv of one key, from every query that may see it, with `out` and
  // `lse` taken as given.
  void key_gradient(int64_t b, int64_t kv_head, int64_t key, RowValues& dk,
                    RowValues& dv);
  // The gradient of a head's sink logit, with `out` and `lse` taken as given. A
  // query whose `out` is all 0 ignores dout, as one without a legal key does.
  Expected sink_gradient(int64_t h);

  double scale() const { return scale_; }
  const Rounding& rounding() const { return rounding_; }
  const double* query(int64_t b, int64_t h, int64_t q);  // until the next call
  const double* dout(int64_t b, int64_t h, int64_t q);   // the same

 private:
  RowOracle(Legality legality, const Request& request,
            const AttentionShape& shape, const ForwardTensors& tensors,
            const Gradients& gradients, const Rounding& rounding);
  // Adds the effect of a rounded row sum to the errors of out and lse.
  void add_row_sum(QueryRow& row);
  // What the products of ds may lose by underflow, without the scale's.
  double ds_lost() const {
    return (2 + 2 * static_cast<double>(shape_.v_head_dim)) * rounding_.lost;
  }
  int64_t plan_head(int64_t h) const {
    return h / (shape_.heads / legality_.heads());
  }
  int64_t kv_head(int64_t h) const {
    return h / (shape_.heads / shape_.kv_heads);
  }
  double dlse(int64_t b, int64_t h, int64_t q) const;

  Legality legality_;
  AttentionShape shape_;
  ForwardTensors tensors_;
  Gradients gradients_;
  int64_t batch_, q_len_, kv_len_;
  double scale_;
  Rounding rounding_;
  std::vector<double> q_, k_, v_, g_, out_, magnitude_;  // a row each
};

}  // namespace tessera::reference
