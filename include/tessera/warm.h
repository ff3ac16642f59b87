// tessera/warm.h: compiles what a run will meet before it begins
// (docs/cache.md).
//
//   WarmList list;
//   for (const Batch& batch : batches) add_call(list, batch, call);
//   auto told = warm_all(*session, list);   // told->compiles
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tessera/batch.h"
#include "tessera/result.h"
#include "tessera/session.h"

namespace tessera {

// One batch of each contract that was met.
struct WarmList {
  struct Call {
    Batch batch;
    AttentionCall call;
  };
  std::map<std::string, Call> calls;  // by contract
  int64_t seen = 0;                   // batches that were added
};
// Keeps the batch where its contract is a new one; says whether it was.
Result<bool> add_call(WarmList& list, const Batch& batch,
                      const AttentionCall& call);

struct WarmOptions {
  int threads = 0;  // compiles at a time; 0: every core this process may use
  // Called from any thread, one call at a time, after each contract.
  std::function<void(int64_t done, int64_t contracts)> progress;
};

// Programs of both directions count.
struct WarmReport {
  int64_t batches = 0;    // that were added
  int64_t contracts = 0;  // distinct ones
  int64_t compiles = 0;   // the compiler really ran
  int64_t disk_hits = 0, memory_hits = 0;
  double ms = 0;
};
// Prepares a batch of each contract in the session, which then has its
// programs, and so has the cache on disk. The first error ends it: a session's
// limit on compiles is one.
Result<WarmReport> warm_all(const Session& session, const WarmList& list,
                            const WarmOptions& options = {});

}  // namespace tessera
