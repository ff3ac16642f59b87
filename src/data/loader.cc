// data/loader.cc: a thread makes batches and their plans ahead of who asks.
#include "tessera/loader.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "base/fail.h"
#include "base/no_signals.h"
#include "plan/batch_state.h"
#include "tessera/contract.h"

namespace tessera {
namespace {

// Rows of padding alone up to `rows`.
void pad_rows(Rows& made, int64_t rows) {
  made.rows = rows;
  for (size_t c = 0; c < kRowColumns; ++c) {
    const auto column = static_cast<RowColumn>(c);
    const RowColumnSpec& spec = spec_of(column);
    made.columns[c].resize(static_cast<size_t>(rows * made.shape.size(column)),
                           spec.pad_id ? made.pad_id : spec.padding);
  }
}

Result<Request> request_of(const LoaderOptions& o) {
  Request request;
  request.masks = o.masks;
  if (request.masks.empty()) {
    auto usual = make_mask(causal() & documents());
    if (!usual) return usual.error();
    request.masks.push_back(std::move(*usual));
  }
  request.batch = o.rows;
  request.q_len = request.kv_len = o.stream.pack.tokens;
  request.tile = o.tile;
  request.ceilings = o.ceilings;
  return request;
}

// Above a ceiling there is no batch.
Result<void> check_ceilings(const Batch& batch) {
  if (batch.request().ceilings == Ceilings{}) return {};
  auto contract = make_contract(batch);
  if (!contract) return contract.error();
  return {};
}

}  // namespace

struct Loader::State {
  State(RowStream rows, OwnedBatch first, const LoaderOptions& asked)
      : stream(std::move(rows)),
        plan(std::move(first)),
        wanted_rows(asked.rows),
        ahead(static_cast<size_t>(asked.ahead)),
        shape(stream.shape()),
        position(stream.position()) {}
  ~State() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    changed.notify_all();
    if (thread.joinable()) thread.join();
  }

  Result<std::optional<LoadedBatch>> make();
  void work();
  bool has_answer() const { return !ready.empty() || over || error; }

  // The thread's own.
  RowStream stream;
  OwnedBatch plan;
  const int64_t wanted_rows;
  const size_t ahead;
  const RowShape shape;

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<LoadedBatch> ready;
  std::optional<Error> error;
  bool over = false, stop = false;

  StreamPosition position;  // the caller's
  std::thread thread;
};

Result<std::optional<LoadedBatch>> Loader::State::make() {
  auto rows = stream.next(wanted_rows);
  if (!rows) return rows.error();
  const int64_t filled = rows->rows;
  if (filled == 0) return std::optional<LoadedBatch>();
  pad_rows(*rows, wanted_rows);
  if (auto e = plan.remake(own_facts(rows->facts())); !e) return e.error();
  if (auto e = check_ceilings(plan); !e) return e.error();
  return std::optional<LoadedBatch>(
      LoadedBatch{std::move(*rows), filled, plan, stream.position(),
                  stream.account(), stream.chunks()});
}

void Loader::State::work() {
  while (true) {
    auto made = [&]() -> Result<std::optional<LoadedBatch>> {
      try {
        return make();
      } catch (const std::bad_alloc&) {
        return over_limit("data",
                          "a batch must fit into memory, found no more for it");
      }
    }();
    std::unique_lock lock(mutex);
    if (!made) {
      error = made.error();
    } else if (*made) {
      ready.push_back(std::move(**made));
    } else {
      over = true;
    }
    changed.notify_all();
    if (over || error) return;
    changed.wait(lock, [&] { return stop || ready.size() < ahead; });
    if (stop) return;
  }
}

Result<Loader> Loader::open(std::unique_ptr<DocumentSource> source,
                            const LoaderOptions& options,
                            const StreamPosition& from) {
  if (options.rows < 1 || options.rows > kMaxBatch) {
    return invalid("data", "a batch must have 1 to {} rows, found {} for it",
                   kMaxBatch, options.rows);
  }
  if (options.ahead < 1 || options.ahead > kMaxAhead) {
    return invalid("data",
                   "batches made ahead must be 1 to {}, found {} for them",
                   kMaxAhead, options.ahead);
  }
  auto stream = RowStream::open(std::move(source), options.stream, from);
  if (!stream) return stream.error();
  auto request = request_of(options);
  if (!request) return request.error();
  // Padding alone tells what is wrong with the request before any work.
  auto rows = Rows::make(stream->shape(), options.rows, options.stream.pad_id);
  if (!rows) return rows.error();
  auto plan = OwnedBatch::copy(std::move(*request), rows->facts());
  if (!plan) return plan.error();
  auto state =
      std::make_unique<State>(std::move(*stream), std::move(*plan), options);
  try {
    const NoSignals none;
    state->thread = std::thread([s = state.get()] { s->work(); });
  } catch (const std::system_error& e) {
    return unavailable("data", "a thread must start, found '{}' for it",
                       e.what());
  }
  return Loader(std::move(state));
}

Result<std::optional<LoadedBatch>> Loader::next() {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  s.changed.wait(lock, [&] { return s.has_answer(); });
  if (s.ready.empty()) {
    if (s.error) return *s.error;
    return std::optional<LoadedBatch>();
  }
  std::optional<LoadedBatch> out(std::move(s.ready.front()));
  s.ready.pop_front();
  s.changed.notify_all();
  s.position = out->after;
  return out;
}

bool Loader::ready(int64_t milliseconds) const {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  return s.changed.wait_for(lock, std::chrono::milliseconds(milliseconds),
                            [&] { return s.has_answer(); });
}

Loader::Loader(std::unique_ptr<State> state) : state_(std::move(state)) {}
Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&&) noexcept = default;
Loader::~Loader() = default;

StreamPosition Loader::position() const { return state_->position; }
const RowShape& Loader::shape() const { return state_->shape; }

}  // namespace tessera
