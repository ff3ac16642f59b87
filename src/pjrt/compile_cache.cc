// pjrt/compile_cache.cc: memory first, then the disk, then the compiler.
#include "pjrt/compile_cache.h"

#include <algorithm>
#include <condition_variable>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>

#include "base/blob_store.h"
#include "base/digest.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/timed.h"
#include "base/trace.h"
#include "pjrt/differing_terms.h"
#include "pjrt/identity.h"

namespace tessera::pjrt {
namespace {

constexpr std::string_view kWhere = "cache";

// Raised when entries on disk change in a way that identity.h cannot see: how
// programs are compiled (execute.cc), or what an entry holds.
constexpr int kEntryVersion = 2;

// The most texts kept for the error of max_compiles.
constexpr size_t kMaxTexts = 64;

// The key of a program in memory: client, devices, the contract's key.
using Place = std::tuple<const Client*, std::vector<int64_t>, std::string>;

// A program in memory, or one that a thread is making.
struct Entry {
  bool done = false;
  std::shared_ptr<const Loaded> program;  // null after `done`: an error
  std::optional<Error> error;
  int64_t used = 0;  // the least is removed first
};

// The key of an entry on disk is the text of all that the entry depends on; the
// store compares the whole key. The digest of the program is in it, so that a
// different program under the same contract, by whatever mistake, is another
// entry.
std::string entry_key(const ProgramKey& key, std::string_view program,
                      std::string_view identity) {
  return fmt::format("tessera program {}\ncontract {}\nstablehlo {} {}\n{}",
                     kEntryVersion, in_quotes(key.contract, SIZE_MAX),
                     digest_of(program), program.size(), identity);
}

// The difference from the text that differs in the fewest fields; of equals,
// the latest.
std::string nearest_difference(const std::vector<std::string>& texts,
                               const std::string& text) {
  std::string nearest;
  std::ptrdiff_t fewest = std::numeric_limits<std::ptrdiff_t>::max();
  for (const std::string& known : texts) {
    const std::string pair[] = {known, text};
    std::string differs = differing_terms(pair);
    const auto fields = std::ranges::count(differs, ';');
    if (fields > fewest) continue;
    fewest = fields;
    nearest = std::move(differs);
  }
  return nearest;
}

void add_once(Warnings& to, std::string warning) {
  if (std::find(to.begin(), to.end(), warning) == to.end()) {
    to.push_back(std::move(warning));
  }
}

}  // namespace

struct CompileCache::State {
  explicit State(CacheOptions from) : options(std::move(from)) {
    if (!options.folder.empty())
      store.emplace(options.folder, options.max_bytes);
  }

  // Makes a program that is not in memory, and that no other thread is making.
  Result<Cached> make(const Client& client, const Devices& devices,
                      const ProgramKey& key, const std::string& program);
  Result<void> count_compile(const ProgramKey& key);
  bool uses_disk(const Client& client);
  // The key of the entry on disk; nothing if the disk is not used.
  std::optional<std::string> disk_key(const Client& client,
                                      const Devices& devices,
                                      const ProgramKey& key,
                                      std::string_view program,
                                      Warnings& warnings);
  std::shared_ptr<const Loaded> from_disk(const Client& client,
                                          const Devices& devices,
                                          const std::string& entry,
                                          Warnings& warnings);
  void to_disk(const Loaded& program, const std::string& entry,
               Warnings& warnings);
  // Warns once, and does not use the disk for this client from now on.
  void give_up_disk(const Client& client, std::string warning,
                    Warnings& warnings);
  void forget_oldest();

  const CacheOptions options;
  std::optional<BlobStore> store;

  std::mutex mutex;  // protects all below
  std::condition_variable changed;
  std::map<Place, std::shared_ptr<Entry>> entries;
  std::vector<std::string> texts;  // contracts that were compiled
  std::set<const Client*> memory_only;
  CompileCounts counts;
  int64_t uses = 0;
};

CompileCache::CompileCache(CacheOptions options)
    : state_(std::make_unique<State>(std::move(options))) {}
CompileCache::~CompileCache() = default;

CompileCounts counts_of(Found found) {
  return {found == Found::compiled, found == Found::memory,
          found == Found::disk};
}

CompileCounts CompileCache::counts() const {
  const std::lock_guard lock(state_->mutex);
  return state_->counts;
}

namespace {

// When the thread that makes an entry leaves, in whatever way, marks the entry
// as done and wakes the threads that wait for it.
class Working {
 public:
  Working(std::mutex& mutex, std::condition_variable& changed,
          std::map<Place, std::shared_ptr<Entry>>& entries, Place place,
          std::shared_ptr<Entry> entry)
      : mutex_(mutex),
        changed_(changed),
        entries_(entries),
        place_(std::move(place)),
        entry_(std::move(entry)) {}
  Working(const Working&) = delete;
  Working& operator=(const Working&) = delete;
  ~Working() {
    const std::lock_guard lock(mutex_);
    entry_->done = true;
    if (!entry_->program) {
      if (!entry_->error) {
        entry_->error = invalid(kWhere,
                                "a program must be made, found an exception "
                                "for contract {}",
                                std::get<2>(place_));
      }
      entries_.erase(place_);  // the next call tries again
    }
    changed_.notify_all();
  }

 private:
  std::mutex& mutex_;
  std::condition_variable& changed_;
  std::map<Place, std::shared_ptr<Entry>>& entries_;
  Place place_;
  std::shared_ptr<Entry> entry_;
};

}  // namespace

Result<Cached> CompileCache::get(
    const Client& client, const Devices& devices, const ProgramKey& key,
    const std::function<Result<std::string>()>& write) {
  State& s = *state_;
  const Place place{&client, devices.ids(), key.contract};
  std::shared_ptr<Entry> entry;
  {
    std::unique_lock lock(s.mutex);
    const auto at = s.entries.find(place);
    if (at != s.entries.end()) {
      entry = at->second;
      s.changed.wait(lock, [&] { return entry->done; });
      if (!entry->program) return *entry->error;
      entry->used = ++s.uses;
      ++s.counts.memory_hits;
      return Cached{entry->program, Found::memory, 0, {}};
    }
    entry = std::make_shared<Entry>();
    s.entries.emplace(place, entry);
  }
  const Working working(s.mutex, s.changed, s.entries, place, entry);
  auto made = [&]() -> Result<Cached> {
    auto program = write();
    if (!program) return program.error();
    return s.make(client, devices, key, *program);
  }();
  const std::lock_guard lock(s.mutex);
  if (!made) {
    entry->error = made.error();
    return made;
  }
  entry->program = made->program;
  entry->used = ++s.uses;
  s.forget_oldest();
  return made;
}

Result<Cached> CompileCache::State::make(const Client& client,
                                         const Devices& devices,
                                         const ProgramKey& key,
                                         const std::string& program) {
  Cached out;
  const auto entry = disk_key(client, devices, key, program, out.warnings);
  if (entry) {
    double ms = 0;
    out.program = timed(
        ms, [&] { return from_disk(client, devices, *entry, out.warnings); });
    if (out.program) {
      out.found = Found::disk;
      out.compile_ms = ms;
      const std::lock_guard lock(mutex);
      ++counts.disk_hits;
      return out;
    }
  }
  if (auto ok = count_compile(key); !ok) return ok.error();
  auto compiled =
      timed(out.compile_ms, [&] { return compile(client, devices, program); });
  if (!compiled) return compiled.error();
  out.program = std::make_shared<const Loaded>(std::move(*compiled));
  if (entry && uses_disk(client)) {
    to_disk(*out.program, *entry, out.warnings);
  }
  return out;
}

Result<void> CompileCache::State::count_compile(const ProgramKey& key) {
  const std::lock_guard lock(mutex);
  const int64_t most = options.max_compiles;
  if (most <= 0) {
    ++counts.compiles;
    return {};
  }
  if (counts.compiles < most) {
    ++counts.compiles;
    if (texts.size() < kMaxTexts) texts.push_back(key.text);
    return {};
  }
  return over_limit(kWhere,
                    "compiles must be at most {}, found one more for contract "
                    "{} (from the nearest known one differs: {})",
                    most, in_quotes(key.contract),
                    nearest_difference(texts, key.text));
}

bool CompileCache::State::uses_disk(const Client& client) {
  const std::lock_guard lock(mutex);
  return store && !memory_only.contains(&client);
}

std::optional<std::string> CompileCache::State::disk_key(
    const Client& client, const Devices& devices, const ProgramKey& key,
    std::string_view program, Warnings& warnings) {
  if (!uses_disk(client)) return {};
  auto identity = identity_of(client, devices);
  if (!identity) {
    give_up_disk(client, identity.error().message, warnings);
    return {};
  }
  return entry_key(key, program, *identity);
}

std::shared_ptr<const Loaded> CompileCache::State::from_disk(
    const Client& client, const Devices& devices, const std::string& entry,
    Warnings& warnings) {
  TraceSpan span("cache", "read");
  const auto bytes = store->get(entry, warnings);
  if (!bytes) return nullptr;
  span.note("bytes", static_cast<int64_t>(bytes->size()));
  auto loaded = load(client, devices, *bytes);
  if (loaded) return std::make_shared<const Loaded>(std::move(*loaded));
  std::string warning =
      io_error(kWhere,
               "the plugin must load what it serialized, found {} for {} (it "
               "is compiled again)",
               in_quotes(loaded.error().message, 300),
               in_quotes(store->path_of(entry), 300))
          .message;
  if (loaded.error().kind == ErrorKind::unavailable) {
    give_up_disk(client, std::move(warning), warnings);
    return nullptr;
  }
  add_once(warnings, std::move(warning));
  store->remove(entry, warnings);
  return nullptr;
}

void CompileCache::State::to_disk(const Loaded& program,
                                  const std::string& entry,
                                  Warnings& warnings) {
  TraceSpan span("cache", "write");
  auto executable = program.executable();
  auto bytes = executable ? executable->serialize()
                          : Result<std::string>(executable.error());
  if (!bytes) {
    give_up_disk(program.client(),
                 io_error(kWhere,
                          "a program must be serialized to be kept on disk, "
                          "found {} for it (it is kept in memory)",
                          in_quotes(bytes.error().message, 300))
                     .message,
                 warnings);
    return;
  }
  span.note("bytes", static_cast<int64_t>(bytes->size()));
  Warnings told;
  store->put(entry, *bytes, told);
  for (std::string& warning : told) add_once(warnings, std::move(warning));
}

void CompileCache::State::give_up_disk(const Client& client,
                                       std::string warning,
                                       Warnings& warnings) {
  const std::lock_guard lock(mutex);
  if (memory_only.insert(&client).second) {
    add_once(warnings, std::move(warning));
  }
}

// A program that runs is kept alive by its own shared_ptr.
void CompileCache::State::forget_oldest() {
  const auto most =
      static_cast<size_t>(std::max<int64_t>(options.max_programs, 1));
  while (entries.size() > most) {
    auto oldest = entries.end();
    for (auto at = entries.begin(); at != entries.end(); ++at) {
      if (!at->second->program) continue;  // a thread is making it
      if (oldest == entries.end() || at->second->used < oldest->second->used) {
        oldest = at;
      }
    }
    if (oldest == entries.end()) return;
    entries.erase(oldest);
  }
}

}  // namespace tessera::pjrt
