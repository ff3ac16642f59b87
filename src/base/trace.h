// base/trace.h: what ran when, as a file for chrome://tracing and Perfetto.
//
// Spans may be opened by any code of any thread. Nothing listens unless a Trace
// lives; then each costs two readings of the clock and a lock, and without one
// a single load of a flag. Nothing that is computed depends on either.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tessera/result.h"

namespace tessera {

// A trace holds so many spans; further ones are dropped and counted in it.
inline constexpr int64_t kMaxTraceSpans = 1 << 18;
// A longer note is cut.
inline constexpr size_t kMaxTraceNote = 1024;

// One at a time in a process: another that begins while it lives stays empty.
class Trace {
 public:
  explicit Trace(int64_t max_spans = kMaxTraceSpans);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // One JSON object; spans that are still open are left out. Every thread has
  // a number of its own, and 1 is that of the thread that made the trace.
  std::string json() const;

 private:
  uint64_t id_ = 0;  // 0: another one lives
};

// The number of the trace that listens; 0: none does.
inline std::atomic<uint64_t> trace_listener{0};

// From here to the end of the scope. `category` and `name` are literals:
// "pjrt", "compile".
class TraceSpan {
 public:
  TraceSpan(const char* category, const char* name) {
    const uint64_t trace = trace_listener.load(std::memory_order_relaxed);
    if (trace != 0) begin(trace, category, name);
  }
  ~TraceSpan() {
    if (open_) end();
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

  // Shown beside the span, under a key that is a literal; nothing is done where
  // nothing listens.
  void note(const char* key, int64_t value) {
    if (open_) add_note(key, value);
  }
  void note(const char* key, std::string_view value) {
    if (open_) add_note(key, value);
  }

 private:
  struct Open;
  struct Delete {
    void operator()(Open* open) const;
  };
  void begin(uint64_t trace, const char* category, const char* name);
  void end();
  void add_note(const char* key, int64_t value);
  void add_note(const char* key, std::string_view value);

  std::unique_ptr<Open, Delete> open_;
};

// What traces call the calling thread: `kind`, a literal, and its number.
void name_trace_thread(const char* kind, int number);

}  // namespace tessera
