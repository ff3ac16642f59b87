// lanes/reference/rows.h: single rows of attention in fp64, from the definition
// (lanes/reference/reference.h), each element with the error that a lane
// computing in fp32 may have. Reads tensors of any layout, a row at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "lanes/reference/bound.h"
#include "tessera/attention.h"
#include "tessera/plan.h"

namespace tessera::reference {

// Elements of one row with their errors, cast at the end not included.
struct RowValues {
  std::vector<double> value, error;

  void reset(int64_t n) {
    value.assign(static_cast<size_t>(n), 0);
    error.assign(static_cast<size_t>(n), 0);
  }
};

// One query of one head, and what its gradient needs of every legal key.
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

// The gradients that one query row hands on.
struct QueryGradient {
  RowValues dq;
  RowValues weight;  // p_j: what dv takes of dout, dv = sum p_j dout
  RowValues ds;      // dk = sum scale ds_j q
  Expected sink;
};

class RowOracle {
 public:
  // Reads q, k, v, sink_logits and for gradients dout, dlse; `out` and `lse`
  // only where a function says so. Views must outlive it.
  static Result<RowOracle> bind(const Request& request, const Facts& facts,
                                const AttentionShape& shape,
                                const ForwardTensors& tensors,
                                const Gradients& gradients = {},
                                bool flushes = false, bool rounded_sum = false);

  void forward(int64_t b, int64_t h, int64_t q, QueryRow& row);
  // Of a row that forward() filled.
  void backward(const QueryRow& row, QueryGradient& gradient);

  // dk and dv of one key, from every query that may see it, with `out` and
  // `lse` taken as given.
  void key_gradient(int64_t b, int64_t kv_head, int64_t key, RowValues& dk,
                    RowValues& dv);
  // The gradient of a head's sink logit, from the same. A query whose `out` is
  // all 0 passes nothing of dout on, as one without a legal key.
  Expected sink_gradient(int64_t h);

  double scale() const { return scale_; }
  const Rounding& rounding() const { return rounding_; }
  const double* query(int64_t b, int64_t h, int64_t q);  // until the next call
  const double* dout(int64_t b, int64_t h, int64_t q);   // the same

 private:
  RowOracle(Legality legality, const Request& request,
            const AttentionShape& shape, const ForwardTensors& tensors,
            const Gradients& gradients, const Rounding& rounding);
  // What a rounded row sum adds to the errors of out and lse.
  void add_row_sum(QueryRow& row);
  // Of ds: what its products may lose, the scale's left out.
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
