// base/trace.h: records what ran when, as a file for chrome://tracing and
// Perfetto.
//
// Any code of any thread may open spans. While a Trace lives, a span costs two
// clock reads and a lock; otherwise it costs one load of a flag. Results never
// depend on tracing.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tessera/result.h"

namespace tessera {

// The most spans of a trace; further spans are dropped, and the trace counts
// them.
inline constexpr int64_t kMaxTraceSpans = 1 << 18;
// A longer note is cut.
inline constexpr size_t kMaxTraceNote = 1024;

// One Trace records at a time in a process: another made meanwhile stays empty.
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
  uint64_t id_ = 0;  // 0: another Trace records
};

// The id of the trace that records; 0: none does.
inline std::atomic<uint64_t> trace_listener{0};

// A span from here to the end of the scope. `category` and `name` are literals:
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

  // Adds a note to the span, under a key that is a literal. Does nothing if no
  // trace records.
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

// Names the calling thread in traces: `kind`, a literal, and its number.
void name_trace_thread(const char* kind, int number);

}  // namespace tessera
