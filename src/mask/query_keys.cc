// mask/query_keys.cc: one classification for all queries that share keys.
#include "mask/query_keys.h"

namespace tessera::mask {

QueryKeys::QueryKeys(const Sweep& pairs) : sweep_(pairs), pairs_(pairs.bound) {}

void QueryKeys::begin_list(int64_t list) {
  const int64_t heads = sweep_.bound.heads;
  const auto groups = static_cast<int64_t>(sweep_.programs.size());
  const int64_t batch_row = list / heads;
  if (list_ < 0 || batch_row != list_ / heads) {
    pairs_.begin_batch_row(batch_row);
  }
  const Program& program =
      sweep_.programs[static_cast<size_t>(list % heads * groups / heads)];
  pairs_.begin_list(program, list % heads);
  const bool causal = program.reach_end == 1;
  shares_ = program.thresholds.size() == (causal ? 1 : 0);
  cut_ = shares_ && causal;
  offset_ = sweep_.bound.rows[static_cast<size_t>(batch_row)].q_offset;
  list_ = list;
}

void QueryKeys::read(int64_t q) {
  keys_.clear();
  for (const Span& s : pairs_.tile_row(q)) {
    if (!keys_.empty() && keys_.back().end == s.begin) {
      keys_.back().end = s.end;
    } else {
      keys_.push_back({s.begin, s.end});
    }
  }
}

}  // namespace tessera::mask
