// base/trace.h: what ran when, as a file for chrome://tracing and Perfetto.
//
// Spans may be opened by any code of any thread. Nothing listens unless a Trace
// lives; then each costs two readings of the clock, and without one a single
// load of a flag.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/result.h"

namespace tessera {

// One at a time in a process.
class Trace {
 public:
  Trace();
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // {"traceEvents": [...]}; spans that are still open are left out.
  std::string json() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// From here to the end of the scope. `category` and `name` are literals: "pjrt",
// "compile".
class TraceSpan {
 public:
  TraceSpan(const char* category, const char* name);
  ~TraceSpan();
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

  // Shown beside the span; nothing is done where nothing listens.
  void note(const char* key, int64_t value);
  void note(const char* key, std::string_view value);

 private:
  bool on_ = false;
  const char* category_;
  const char* name_;
  int64_t start_ns_ = 0;
  std::vector<std::pair<const char*, std::string>> notes_;
};

}  // namespace tessera
