// data/loader.cc: threads make batches and their plans ahead of the caller.
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <variant>

#include "base/fail.h"
#include "base/no_signals.h"
#include "data/row_cost.h"
#include "data/row_file_stream.h"
#include "plan/batch_state.h"
#include "tessera/batch.h"
#include "tessera/documents.h"

namespace tessera {
namespace {

// Pads the batch to `rows` rows.
void pad_rows(Rows& made, int64_t rows) {
  made.rows = rows;
  for (size_t c = 0; c < kRowColumns; ++c) {
    const auto column = static_cast<RowColumn>(c);
    const RowColumnSpec& spec = spec_of(column);
    made.columns[c].resize(static_cast<size_t>(rows * made.shape.size(column)),
                           spec.pad_id ? made.pad_id : spec.padding);
  }
}

Result<Request> request_of(const BatchOptions& o, int64_t tokens) {
  Request request;
  request.masks = o.masks;
  if (request.masks.empty()) {
    auto usual = data::usual_mask();
    if (!usual) return usual.error();
    request.masks.push_back(std::move(*usual));
  }
  request.batch = o.rows;
  request.q_len = request.kv_len = tokens;
  request.tile = o.tile;
  request.ceilings = o.ceilings;
  return request;
}

// An error if the batch exceeds a ceiling.
Result<void> check_ceilings(const Batch& batch) {
  if (batch.request().ceilings == Ceilings{}) return {};
  auto contract = make_contract(batch);
  if (!contract) return contract.error();
  return {};
}

// Makes rows from documents, or reads rows that were packed before.
using AnyStream = std::variant<RowStream, data::RowFileStream>;

RowShape shape_of(const AnyStream& any) {
  return std::visit([](const auto& stream) { return stream.shape(); }, any);
}

// The rows of a batch, and the stream's state after them; no rows at the end.
struct Taken {
  Rows rows;
  int64_t filled = 0;
  StreamPosition after;
  StreamReport report;
};

// A batch, or the stream's state at its end. The end or an error is final.
using Answer = Result<std::variant<LoadedBatch, Taken>>;

template <class Work>
auto within_memory(const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return over_limit("data",
                      "a batch must fit into memory, found no more for it");
  }
}

Result<Taken> take_rows(AnyStream& any, int64_t wanted, SpareRows& spare) {
  return std::visit(
      [&](auto& stream) -> Result<Taken> {
        auto rows = stream.next(wanted, spare.take());
        if (!rows) return rows.error();
        const int64_t filled = rows->rows;
        if (filled > 0) pad_rows(*rows, wanted);
        return Taken{std::move(*rows), filled, stream.position(),
                     stream.report()};
      },
      any);
}

// Adds the plan, which is made in `plan`.
Answer plan_rows(Result<Taken> taken, OwnedBatch& plan) {
  if (!taken) return taken.error();
  Taken& t = *taken;
  if (t.filled == 0) return Answer(std::move(t));
  if (auto e = plan.remake(own_facts(t.rows.facts())); !e) return e.error();
  if (auto e = check_ceilings(plan); !e) return e.error();
  return Answer(LoadedBatch{std::move(t.rows), t.filled, plan,
                            std::move(t.after), std::move(t.report)});
}

// The loader's mask decides the cost of rows, unless the options name another.
Result<StreamOptions> balanced(const LoaderOptions& options) {
  StreamOptions out = options.stream;
  if (out.pack.mask) return out;
  if (options.masks.size() == 1) out.pack.mask = options.masks[0];
  if (options.masks.size() <= 1 || out.pack.strategy != PackStrategy::by_cost) {
    return out;
  }
  return invalid("data",
                 "rows packed by cost must be of one mask, found {} of them",
                 options.masks.size());
}

}  // namespace

struct Loader::State {
  State(AnyStream rows, const BatchOptions& asked)
      : stream(std::move(rows)),
        wanted_rows(asked.rows),
        ahead(asked.ahead),
        shape(shape_of(stream)),
        spare(std::make_shared<SpareRows>(static_cast<size_t>(ahead) + 1)) {
    std::visit(
        [this](const auto& s) {
          position = s.position();
          report = s.report();
        },
        stream);
  }
  ~State() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    changed.notify_all();
    for (std::thread& thread : threads) {
      if (thread.joinable()) thread.join();
    }
  }

  // Starts the threads.
  static Result<Loader> start(AnyStream stream, const BatchOptions& options);

  // The number and rows of the next batch; nothing if there are no more.
  std::optional<std::pair<int64_t, Result<Taken>>> take_in_turn();
  void work(OwnedBatch& plan);
  bool has_answer() const { return ready.contains(handed); }

  // One thread at a time takes rows, in order; plans are made in parallel. So
  // batches do not depend on the number of threads.
  std::mutex taking;
  AnyStream stream;
  const int64_t wanted_rows, ahead;
  const RowShape shape;
  const std::shared_ptr<SpareRows> spare;

  std::mutex mutex;
  std::condition_variable changed;
  std::map<int64_t, Answer> ready;  // by the batch's number
  int64_t taken = 0, handed = 0;    // counts of batches
  bool over = false, stop = false;  // over: no more are taken

  StreamPosition position;        // after the caller's last batch
  StreamReport report;            // up to `position`
  std::vector<OwnedBatch> plans;  // one for each thread
  std::vector<std::thread> threads;
};

std::optional<std::pair<int64_t, Result<Taken>>> Loader::State::take_in_turn() {
  const std::lock_guard turn(taking);
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return stop || over || taken < handed + ahead; });
    if (stop || over) return std::nullopt;
  }
  Result<Taken> rows =
      within_memory([&] { return take_rows(stream, wanted_rows, *spare); });
  const std::lock_guard lock(mutex);
  if (!rows || rows->filled == 0) over = true;
  return std::pair(taken++, std::move(rows));
}

void Loader::State::work(OwnedBatch& plan) {
  while (auto next = take_in_turn()) {
    Answer answer =
        within_memory([&] { return plan_rows(std::move(next->second), plan); });
    const std::lock_guard lock(mutex);
    if (!answer) over = true;
    ready.emplace(next->first, std::move(answer));
    changed.notify_all();
  }
}

namespace {

Result<void> check_options(const BatchOptions& options) {
  if (options.rows < 1 || options.rows > kMaxBatch) {
    return invalid("data", "a batch must have 1 to {} rows, found {} for it",
                   kMaxBatch, options.rows);
  }
  if (options.ahead < 1 || options.ahead > kMaxAhead) {
    return invalid("data",
                   "batches made ahead must be 1 to {}, found {} for them",
                   kMaxAhead, options.ahead);
  }
  if (options.workers >= 1 && options.workers <= kMaxAhead) return {};
  return invalid("data", "a loader's workers must be 1 to {}, found {} of them",
                 kMaxAhead, options.workers);
}

}  // namespace

Result<Loader> Loader::State::start(AnyStream stream,
                                    const BatchOptions& options) {
  const RowShape shape = shape_of(stream);
  auto request = request_of(options, shape.tokens);
  if (!request) return request.error();
  // Rows of padding show what is wrong with the request before any work.
  auto rows = Rows::make(shape, options.rows);
  if (!rows) return rows.error();
  auto state = std::make_unique<State>(std::move(stream), options);
  for (int64_t w = 0; w < options.workers; ++w) {
    auto plan = OwnedBatch::copy(*request, rows->facts());
    if (!plan) return plan.error();
    state->plans.push_back(std::move(*plan));
  }
  try {
    const NoSignals none;
    for (OwnedBatch& plan : state->plans) {
      state->threads.emplace_back([s = state.get(), &plan] { s->work(plan); });
    }
  } catch (const std::system_error& e) {
    return unavailable("data", "a thread must start, found '{}' for it",
                       e.what());
  }
  return Loader(std::move(state));
}

Result<Loader> Loader::open(std::unique_ptr<DocumentSource> source,
                            const LoaderOptions& options,
                            const StreamPosition& from) {
  if (auto e = check_options(options); !e) return e.error();
  source->set_workers(options.workers);
  auto stream_options = balanced(options);
  if (!stream_options) return stream_options.error();
  auto stream = RowStream::open(std::move(source), *stream_options, from);
  if (!stream) return stream.error();
  return State::start(std::move(*stream), options);
}

Result<Loader> Loader::open_rows(const std::string& path,
                                 const BatchOptions& options,
                                 const StreamPosition& from) {
  if (auto e = check_options(options); !e) return e.error();
  auto stream = data::RowFileStream::open(path, from);
  if (!stream) return stream.error();
  return State::start(std::move(*stream), options);
}

Result<std::optional<LoadedBatch>> Loader::next() {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  s.changed.wait(lock, [&] { return s.has_answer(); });
  const auto answer = s.ready.find(s.handed);
  if (!answer->second) return answer->second.error();
  // The end stays in `ready`, so later calls return it again.
  if (const auto* const end = std::get_if<Taken>(&*answer->second)) {
    s.position = end->after;
    s.report = end->report;
    return std::optional<LoadedBatch>();
  }
  std::optional<LoadedBatch> out(
      std::get<LoadedBatch>(std::move(*answer->second)));
  s.position = out->after;
  s.report = out->report;
  s.ready.erase(answer);
  ++s.handed;
  s.changed.notify_all();
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

const StreamPosition& Loader::position() const { return state_->position; }
const StreamReport& Loader::report() const { return state_->report; }
const RowShape& Loader::shape() const { return state_->shape; }
std::shared_ptr<SpareRows> Loader::spare() const { return state_->spare; }

std::vector<std::thread::id> Loader::threads() const {
  std::vector<std::thread::id> out;
  for (const std::thread& thread : state_->threads) {
    out.push_back(thread.get_id());
  }
  return out;
}

void SpareRows::give(Rows rows) {
  const std::lock_guard lock(mutex_);
  if (rows_.size() < most_) rows_.push_back(std::move(rows));
}

Rows SpareRows::take() {
  const std::lock_guard lock(mutex_);
  if (rows_.empty()) return {};
  Rows out = std::move(rows_.back());
  rows_.pop_back();
  return out;
}

}  // namespace tessera
