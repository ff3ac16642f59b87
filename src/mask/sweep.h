// mask/sweep.h: a request and its facts made ready to be classified, and the
// walk over their lists.
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

  // visit(list, batch_row, head) for every list in order, up to the first that
  // gives an error; it asks `list`, a Classifier, for tile rows, ascending.
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

// The same with another tile, of any size.
Sweep with_tile(const Sweep& sweep, Tile tile);

// Both must outlive the sweep, which points into them.
Result<Sweep> start_sweep(const Request& request, const Facts& facts);

// Other facts of the same request into a sweep that start_sweep made of it. On
// an error the sweep is unspecified.
Result<void> bind_again(const Request& request, const Facts& facts,
                        Sweep& sweep);

}  // namespace tessera::mask
