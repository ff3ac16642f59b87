// pjrt/compile_cache.h: compiled programs, kept in memory and on disk under the
// key of their kernel contract.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pjrt/execute.h"
#include "tessera/machine.h"

namespace tessera::pjrt {

struct CacheOptions {
  std::string folder;                      // empty: memory only
  int64_t max_bytes = kDefaultCacheBytes;  // on disk; the oldest go first
  int64_t max_programs = 256;              // in memory; the oldest go first
  // Compiles of this cache at most; one more is an error that says what varied
  // between the contracts. 0: no limit.
  int64_t max_compiles = 0;
};

// How a program was come by.
enum class Found : uint8_t { compiled, memory, disk };
CompileCounts counts_of(Found found);

struct Cached {
  std::shared_ptr<const Loaded> program;
  Found found = Found::compiled;
  double compile_ms = 0;  // or of loading
  // Of the disk: full, read-only, an entry that was not what it must be. The
  // program is right all the same.
  std::vector<std::string> warnings;
};

// What a program is kept under. `contract` is a kernel contract's key, `text`
// the JSON that it digests; another version of what makes the program must be
// in them. Plugin, its version, platform and device are added by the cache.
struct ProgramKey {
  std::string contract;
  std::string text;
};

// Safe from any thread; two that want the same program compile it once.
class CompileCache {
 public:
  explicit CompileCache(CacheOptions options);
  ~CompileCache();

  // `write` gives the StableHLO; it is not called on a hit in memory. On disk
  // an entry is another one when what it writes differs. Threads that wait for
  // one another's program share its error as well.
  Result<Cached> get(const Client& client, const Devices& devices,
                     const ProgramKey& key,
                     const std::function<Result<std::string>()>& write);
  CompileCounts counts() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::pjrt
