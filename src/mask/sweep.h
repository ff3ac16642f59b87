// mask/sweep.h: a request and its facts, bound and compiled for classification,
// and the loop over their lists.
#pragma once

#include <cstdint>
#include <vector>

#include "base/integers.h"
#include "mask/bind.h"
#include "mask/classify.h"
#include "mask/program.h"

namespace tessera::mask {

struct Sweep {
  Bound bound;
  std::vector<Program> programs;  // per mask of the request

  int64_t lists() const { return bound.batch * bound.heads; }
  int64_t rows() const { return ceil_div(bound.q_len, bound.tile.q); }
  int64_t columns() const { return ceil_div(bound.kv_len, bound.tile.kv); }

  // Calls visit(list, batch_row, head) for every list in order, and stops at
  // the first error. visit asks `list`, a Classifier, for tile rows in
  // ascending order.
  template <class Visit>
  Result<void> each_list(Visit&& visit) const {
    Classifier list(bound);
    const auto groups = static_cast<int64_t>(programs.size());
    for (int64_t b = 0; b < bound.batch; ++b) {
      list.begin_batch_row(b);
      for (int64_t h = 0; h < bound.heads; ++h) {
        list.begin_list(programs[static_cast<size_t>(h * groups / bound.heads)],
                        h);
        if (Result<void> r = visit(list, b, h); !r) return r;
      }
    }
    return {};
  }
};

// A copy of the sweep with another tile, of any size.
Sweep with_tile(const Sweep& sweep, Tile tile);

// The sweep points into `request` and `facts`, which must outlive it.
Result<Sweep> start_sweep(const Request& request, const Facts& facts);

// Binds other facts of the same request into a sweep from start_sweep. On an
// error the sweep is unspecified.
Result<void> bind_again(const Request& request, const Facts& facts,
                        Sweep& sweep);

}  // namespace tessera::mask
