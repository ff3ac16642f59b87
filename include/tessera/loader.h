// tessera/loader.h: batches of packed rows, each with its attention plan, made
// ahead by threads.
//
//   auto loader = Loader::open(std::move(source), options);
//   while (true) {
//     auto next = loader->next();
//     if (!next || !*next) break;  // an error; the end
//     use((*next)->rows, (*next)->batch);
//   }
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tessera/batch.h"
#include "tessera/documents.h"

namespace tessera {

inline constexpr int64_t kMaxAhead = 64;

struct LoaderOptions {
  StreamOptions stream;
  int64_t rows = 8;         // of every batch
  std::vector<Mask> masks;  // none: causal & documents
  Tile tile = {};
  Ceilings ceilings = {};
  int64_t ahead = 2;    // batches made before they are asked for
  int64_t workers = 1;  // threads that plan them: batches are the same for any
};

struct LoadedBatch {
  Rows rows;       // all of `rows` rows; those past `filled` are padding alone
  int64_t filled;  // fewer than `rows` in the last batch alone
  OwnedBatch batch;      // the plan of doc_ids and valid_token_count
  StreamPosition after;  // Loader::open goes on from here, exactly
  // As they were when this batch was made: of the windows packed by then, and
  // of the chunks handed out.
  PackAccount account;
  ChunkAccount chunks;
};

// One thread at a time may call it. Destroying it stops the threads, one of
// which may end what it is reading first.
class Loader {
 public:
  // Masks may need no other facts than those of the rows.
  static Result<Loader> open(std::unique_ptr<DocumentSource> source,
                             const LoaderOptions& options,
                             const StreamPosition& from = {});
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;
  ~Loader();

  // The next batch; none after the last. An error comes after the batches that
  // were made before it, and again from then on.
  Result<std::optional<LoadedBatch>> next();
  // Whether next() has an answer; waits for it so long at most.
  bool ready(int64_t milliseconds) const;
  // Of the last batch that was handed out; where it was opened before any.
  StreamPosition position() const;
  const RowShape& shape() const;

 private:
  struct State;
  explicit Loader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tessera
