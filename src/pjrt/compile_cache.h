// pjrt/compile_cache.h: keeps compiled programs in memory and on disk, under
// the key of their kernel contract.
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
  int64_t max_bytes = kDefaultCacheBytes;  // on disk; evicts the oldest
  int64_t max_programs = 256;              // in memory; evicts the oldest
  // The most compiles of this cache; one more is an error that says what varied
  // between the contracts. 0: no limit.
  int64_t max_compiles = 0;
};

// Where a program came from.
enum class Found : uint8_t { compiled, memory, disk };
CompileCounts counts_of(Found found);

struct Cached {
  std::shared_ptr<const Loaded> program;
  Found found = Found::compiled;
  double compile_ms = 0;  // or the time of loading
  // Troubles of the disk: full, read-only, an invalid entry. The program is
  // correct nevertheless.
  std::vector<std::string> warnings;
};

// The key of a program. `contract` is a kernel contract's key, `text` the JSON
// that it digests; versions of whatever makes the program must be in them. The
// cache adds the plugin, its version, platform and device.
struct ProgramKey {
  std::string contract;
  std::string text;
};

// Safe from any thread; two threads that want the same program compile it once.
class CompileCache {
 public:
  explicit CompileCache(CacheOptions options);
  ~CompileCache();

  // `write` returns the StableHLO; it is not called on a hit in memory. On
  // disk, a different StableHLO is a different entry. Threads that wait for
  // another thread's program also share its error.
  Result<Cached> get(const Client& client, const Devices& devices,
                     const ProgramKey& key,
                     const std::function<Result<std::string>()>& write);
  CompileCounts counts() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::pjrt
