// lanes/reference/judge.h: what a lane wrote, judged element by element against
// fp64 within the bounds of bound.cc. For `tessera run --check` and the tests
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
  // has the first and the last query of the batch, the rest is drawn by `seed`.
  int64_t query_rows = 0;
  int64_t key_rows = 0;
  uint64_t seed = 0;
  bool flushes = false;  // the lane takes and gives 0 for subnormal numbers
  // It sums probabilities as their product takes them (RowSum::rounded).
  bool rounded_sum = false;
  std::function<void(double)> progress = {};  // share done, 0 to 1
};

struct Verdict {
  int64_t rows = 0;      // query rows and key rows that were judged
  double max_error = 0;  // largest |got - fp64|
  double max_ratio = 0;  // largest share of the bound that was used
  std::string worst;     // the element of that share
  bool passed() const { return max_ratio <= 1; }
};

// Pairs and array elements that all rows may have at most, so that judging them
// takes seconds; above, sample.
bool can_judge_all(const Request& request, const AttentionShape& shape);

// `out` and, unless empty, `lse`.
Result<Verdict> judge_forward(const Batch& batch, const AttentionShape& shape,
                              const ForwardTensors& tensors,
                              const JudgeOptions& options = {});

// dq, dk, dv and, where there are sink logits, dsink_logits. All rows: from q,
// k, v and dout alone. A sample: dq so too, dk, dv and dsink_logits from `out`
// and `lse` as they are.
Result<Verdict> judge_backward(const Batch& batch, const AttentionShape& shape,
                               const ForwardTensors& tensors,
                               const Gradients& gradients,
                               const JudgeOptions& options = {});

// The same of attention that was declared and not planned, as an artifact's.
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
