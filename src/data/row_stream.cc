// data/row_stream.cc: makes rows from documents, one window at a time.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "base/digest.h"
#include "base/fail.h"
#include "base/huge_pages.h"
#include "base/text.h"
#include "data/balance.h"
#include "data/fill_row.h"
#include "data/position_fields.h"
#include "data/row_cost.h"
#include "data/row_file.h"
#include "tessera/documents.h"

namespace tessera {
namespace {

// Tokens of a window to reserve room for: growing copies them repeatedly.
constexpr int64_t kReserved = int64_t{1} << 25;

// To be increased when the same documents and options give other rows, so that
// older positions are refused.
constexpr int64_t kPackerVersion = 1;

// A digest of all options that decide which rows come in which order.
std::string options_digest(const StreamOptions& o) {
  const PackOptions& p = o.pack;
  const std::string mask = p.mask ? to_string(*p.mask) : "";
  Digest digest;
  digest.add(mask.data(), mask.size());
  for (const int64_t n :
       {kPackerVersion, p.tokens, static_cast<int64_t>(p.strategy),
        static_cast<int64_t>(p.long_documents), p.window_rows, p.rows_per_step,
        std::bit_cast<int64_t>(p.mixing), std::bit_cast<int64_t>(p.seed),
        int64_t{p.tile.q}, int64_t{p.tile.kv}, int64_t{o.pad_id}, o.max_chunks,
        o.max_edges, static_cast<int64_t>(o.chunk_room)}) {
    digest.add(n);
  }
  return digest.hex();
}

// Limits on untrusted counts, so that sums do not overflow.
double most_of(int64_t) { return static_cast<double>(data::kMaxCount); }
double most_of(double) { return std::numeric_limits<double>::max(); }

// More windows than any data set has; counting on from it does not overflow.
constexpr int64_t kMaxWindows = int64_t{1} << 48;

Result<void> check_position(const StreamPosition& from,
                            const StreamOptions& options,
                            const StreamPosition& begin) {
  if (auto e = data::check_stream(from, begin); !e) return e;
  const PackState& state = from.state;
  if (state.window < 0 || state.window > kMaxWindows || state.open_rows < 0 ||
      state.open_rows >= options.pack.rows_per_step ||
      !std::isfinite(state.open_cost) || state.open_cost < 0) {
    return invalid("data",
                   "a position must be within a step of {} rows, found window "
                   "{}, {} rows of cost {}",
                   options.pack.rows_per_step, state.window, state.open_rows,
                   state.open_cost);
  }
  Result<void> checked = {};
  data::visit_counts(from.counted, [&](const char* name, auto n) {
    const auto value = static_cast<double>(n);  // NaN fails the range check
    if (!checked || (value >= 0 && value <= most_of(n))) return;
    checked = invalid("data",
                      "a position must have counts of 0 to {}, found {} for {}",
                      most_of(n), n, name);
  });
  return checked;
}

// New memory is not padded, since fill() writes all of it. The columns shrink
// only after the last row, because growing again would clear memory.
void make_room(Rows& made, int64_t rows) {
  made.rows = rows;
  for (size_t c = 0; c < kRowColumns; ++c) {
    const auto size =
        static_cast<size_t>(rows * made.shape.size(static_cast<RowColumn>(c)));
    if (made.columns[c].empty()) reserve_huge(made.columns[c], size);
    if (made.columns[c].size() < size) made.columns[c].resize(size);
  }
}

void end_rows(Rows& made, int64_t rows) {
  made.rows = rows;
  for (size_t c = 0; c < kRowColumns; ++c) {
    made.columns[c].resize(
        static_cast<size_t>(rows * made.shape.size(static_cast<RowColumn>(c))));
  }
}

}  // namespace

Result<void> data::check_stream(const StreamPosition& from,
                                const StreamPosition& begin) {
  if (from.options != begin.options) {
    return invalid("data",
                   "a position must be of a stream of the same options, found "
                   "the digest {} for {}",
                   in_quotes(from.options), in_quotes(begin.options));
  }
  if (from.inputs == begin.inputs) return {};
  return invalid("data",
                 "a position must be of the same inputs (files by name, size "
                 "and order), found the digest {} for {}",
                 in_quotes(from.inputs), in_quotes(begin.inputs));
}

struct RowStream::State {
  State(std::unique_ptr<DocumentSource> from, const StreamOptions& asked,
        const StreamCounts& counted)
      : source(std::move(from)),
        options(asked),
        filler(asked.chunk_room, [this](int64_t d) { return place(d); }),
        account(counted.account),
        meter(asked.pack.rows_per_step, counted.balance),
        ignored_before(counted.ignored) {
    at.options = options_digest(asked);
    at.inputs = source->inputs();
    at.counted = counted;
    filler.account = counted.chunks;
  }

  Result<bool> load_window();
  Result<void> check_chunks() const;
  bool is_full() const;
  std::string place(int64_t document) const;
  std::set<std::string> ignored() const;

  std::unique_ptr<DocumentSource> source;
  StreamOptions options;
  RowShape shape;
  data::RowFiller filler;
  PackAccount account;
  data::BalanceMeter meter;
  std::set<std::string> ignored_before;  // names before this stream was opened

  Documents window;
  std::vector<SourcePosition> ends;  // of its documents, if one may be refused
  Packing packing;
  // Position in this window; the counts are those before this window.
  StreamPosition at;
  PackState next_state;
};

// The limits bound memory by tokens, chunks, edges and documents.
bool RowStream::State::is_full() const {
  const int64_t most = options.pack.window_rows * options.pack.tokens;
  const int64_t edges =
      window.edge_start[0].back() + window.edge_start[1].back();
  return window.tokens() >= most || window.chunk_start.back() >= most ||
         edges >= most || window.size() >= kMaxWindowDocuments;
}

// Names a document of the window, for errors.
std::string RowStream::State::place(int64_t document) const {
  std::string said = source->place(ends[static_cast<size_t>(document)]);
  if (!said.empty()) return said;
  return fmt::format("document {} of its window", document);
}

std::set<std::string> RowStream::State::ignored() const {
  std::set<std::string> all = source->ignored();
  all.insert(ignored_before.begin(), ignored_before.end());
  return all;
}

// At the end: chunks are dropped only with tokens, edges only with chunks.
Result<void> RowStream::State::check_chunks() const {
  const ChunkAccount& c = filler.account;
  const int64_t chunks = c.chunks_dropped(), edges = c.edges_dropped();
  if (chunks >= 0 && edges >= 0 &&
      (account.tokens_dropped > 0 || (chunks == 0 && edges == 0))) {
    return {};
  }
  return invalid("data",
                 "chunks and edges in must be those out and dropped, found {} "
                 "and {} more",
                 chunks, edges);
}

// False if there are no more documents.
Result<bool> RowStream::State::load_window() {
  at.source = source->position();
  at.state = next_state;
  at.rows = 0;
  at.counted = {account, filler.account, meter.sums(), ignored()};
  window.clear();
  ends.clear();
  packing = {};
  const int64_t most = options.pack.window_rows * options.pack.tokens;
  // The last document of a window may be longer than what was missing.
  const int64_t room = std::min(most, kReserved);
  reserve_huge(window.input_ids, static_cast<size_t>(room + room / 8));
  bool more = true;
  while (!is_full()) {
    auto read = source->read(window);
    if (!read) return read.error();
    more = *read;
    if (!more) break;
    if (options.chunk_room == ChunkRoom::refuse) {
      ends.push_back(source->position());
    }
  }
  if (window.size() == 0) return false;
  std::vector<int32_t> lengths(static_cast<size_t>(window.size()));
  for (size_t d = 0; d < lengths.size(); ++d) {
    lengths[d] =
        static_cast<int32_t>(window.token_start[d + 1] - window.token_start[d]);
  }
  if (auto e = pack_window(lengths, 0, options.pack, next_state, packing); !e) {
    return e.error();
  }
  auto costs = row_costs(packing, options.pack);
  if (!costs) return costs.error();
  for (int64_t r = 0; r < packing.rows(); ++r) {
    meter.add(packing.row(r), (*costs)[static_cast<size_t>(r)]);
  }
  account += packing.account;
  filler.start(window, packing.parts);
  filler.account.chunks_in += static_cast<int64_t>(window.chunk_starts.size());
  for (const std::vector<int32_t>& edges : window.edges) {
    filler.account.edges_in += static_cast<int64_t>(edges.size() / 2);
  }
  return true;
}

Result<RowStream> RowStream::open(std::unique_ptr<DocumentSource> source,
                                  const StreamOptions& options,
                                  const StreamPosition& from) {
  auto state =
      std::make_unique<State>(std::move(source), options, from.counted);
  State& s = *state;
  s.shape = RowShape::of(options.pack.tokens);
  if (options.max_chunks != 0) s.shape.max_chunks = options.max_chunks;
  s.shape.max_edges =
      options.max_edges != 0 ? options.max_edges : 2 * s.shape.max_chunks;
  if (auto e = Rows::make(s.shape, 0); !e) return e.error();
  if (auto e = next_window({}, options.pack); !e) return e.error();
  if (auto e = data::RowCost::make(options.pack); !e) return e.error();
  if (from == StreamPosition{}) return RowStream(std::move(state));
  if (auto e = check_position(from, options, s.at); !e) return e.error();
  // From the beginning, nothing is read before the first next().
  if (from == s.at) return RowStream(std::move(state));
  if (auto e = s.source->seek(from.source); !e) return e.error();
  s.next_state = from.state;
  if (auto e = s.load_window(); !e) return e.error();
  if (from.rows < 0 || from.rows > s.packing.rows()) {
    return invalid("data",
                   "a position must come from the same documents, found row {} "
                   "for a window of {}",
                   from.rows, s.packing.rows());
  }
  s.at.rows = from.rows;
  return RowStream(std::move(state));
}

Result<Rows> RowStream::next(int64_t rows, Rows spare) {
  State& s = *state_;
  if (auto e = data::check_size(s.shape, rows); !e) return e.error();
  Rows made{s.shape, 0, s.options.pad_id, std::move(spare.columns)};
  int64_t filled = 0;
  while (filled < rows) {
    if (s.at.rows == s.packing.rows()) {
      auto more = s.load_window();
      if (!more) return more.error();
      if (!*more) {
        if (auto e = s.check_chunks(); !e) return e.error();
        break;
      }
      continue;
    }
    // Room for the rows of this window only: the last rows may be fewer.
    if (filled == made.rows) {
      make_room(made, std::min(rows, filled + s.packing.rows() - s.at.rows));
    }
    if (auto e = s.filler.fill(s.packing.row(s.at.rows), made, filled); !e) {
      return e.error();
    }
    ++s.at.rows;
    ++filled;
  }
  end_rows(made, filled);
  return made;
}

RowStream::RowStream(std::unique_ptr<State> state) : state_(std::move(state)) {}
RowStream::RowStream(RowStream&&) noexcept = default;
RowStream& RowStream::operator=(RowStream&&) noexcept = default;
RowStream::~RowStream() = default;

StreamPosition RowStream::position() const {
  StreamPosition at = state_->at;
  // The window is read again, but rows that were returned are not made again.
  ChunkAccount& chunks = at.counted.chunks;
  const ChunkAccount before = chunks;
  chunks = state_->filler.account;
  chunks.chunks_in = before.chunks_in;
  chunks.edges_in = before.edges_in;
  return at;
}
const RowShape& RowStream::shape() const { return state_->shape; }
StreamReport RowStream::report() const {
  return {state_->account, state_->filler.account, state_->meter.balance(),
          state_->ignored()};
}

}  // namespace tessera
