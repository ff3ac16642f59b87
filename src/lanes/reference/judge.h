// lanes/reference/judge.h: judges a lane's results element by element against
// fp64, within the bounds of bound.cc. For `tessera run --check` and the tests
// of kernels.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tessera/attention.h"
#include "tessera/batch.h"
#include "tessera/plan.h"
#include "tessera/result.h"

namespace tessera::reference {

struct JudgeOptions {
  // Query rows to judge, and key rows for gradients; 0 is all of them. A sample
  // has the first and the last row; the others are drawn by `seed`.
  int64_t query_rows = 0;
  int64_t key_rows = 0;
  uint64_t seed = 0;
  bool flushes = false;  // the lane reads and writes subnormals as 0
  // The lane sums probabilities as rounded for the product (RowSum::rounded).
  bool rounded_sum = false;
  std::function<void(double)> progress = {};  // fraction done, 0 to 1
};

struct Verdict {
  int64_t rows = 0;      // query rows and key rows that were judged
  double max_error = 0;  // largest |got - fp64|
  double max_ratio = 0;  // largest error over its bound
  std::string worst;     // the element with that ratio
  bool passed() const { return max_ratio <= 1; }
};

// Whether there are so few pairs and elements that judging all rows takes
// seconds. If not, judge a sample.
bool can_judge_all(const Request& request, const AttentionShape& shape);

// Judges `out` and, unless empty, `lse`.
Result<Verdict> judge_forward(const Batch& batch, const AttentionShape& shape,
                              const ForwardTensors& tensors,
                              const JudgeOptions& options = {});

// Judges dq, dk, dv and, with sink logits, dsink_logits. Expected values come
// from q, k, v, dout and dlse alone; in a sample those of dk, dv and
// dsink_logits use `out` and `lse` as given.
Result<Verdict> judge_backward(const Batch& batch, const AttentionShape& shape,
                               const ForwardTensors& tensors,
                               const Gradients& gradients,
                               const JudgeOptions& options = {});

// The same for attention that is declared and not planned, as in an artifact.
Result<Verdict> judge_declared_forward(const Request& request,
                                       const Facts& facts,
                                       const AttentionShape& shape,
                                       const ForwardTensors& tensors,
                                       const JudgeOptions& options = {});
Result<Verdict> judge_declared_backward(const Request& request,
                                        const Facts& facts,
                                        const AttentionShape& shape,
                                        const ForwardTensors& tensors,
                                        const Gradients& gradients,
                                        const JudgeOptions& options = {});

}  // namespace tessera::reference
