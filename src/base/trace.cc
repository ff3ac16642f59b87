// base/trace.cc: one list of finished spans under one lock, which suffices
// because spans are coarse.
//
// Ids of traces are never reused, so a span that outlives its trace finds
// another id and records nothing.
#include "base/trace.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <new>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "tessera/version.h"

namespace tessera {
namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct Record {
  const char* category = nullptr;
  const char* name = nullptr;
  int64_t start_ns = 0, end_ns = 0;
  int thread = 0;
  std::string notes;  // members of a JSON object
};

struct Recorded {
  std::mutex mutex;
  uint64_t last_id = 0;  // the last id given to a trace
  uint64_t id = 0;       // the trace that records; 0: none
  int64_t start_ns = 0;
  int64_t max_spans = 0, dropped = 0;
  int threads = 0;
  std::map<int, std::string> names;  // by thread number
  std::vector<Record> spans;
};

// Never destroyed: threads may end their spans while the process exits.
Recorded& recorded() {
  static auto* const all = new Recorded;
  return *all;
}

struct Thread {
  const char* kind = nullptr;
  int kind_number = 0;
  uint64_t trace = 0;  // the trace in which it has `number`
  int number = 0;
};
thread_local Thread calling_thread;

// The caller holds the lock.
int number_thread(Recorded& r) {
  Thread& t = calling_thread;
  if (t.trace == r.id) return t.number;
  const int number = r.threads + 1;
  if (t.kind != nullptr) {
    r.names[number] = fmt::format("{} {}", t.kind, t.kind_number);
  }
  r.threads = t.number = number;
  t.trace = r.id;
  return number;
}

// Text as a JSON string, quotes and all.
std::string json_text(std::string_view text) {
  std::string shown(text.substr(0, kMaxTraceNote));
  if (text.size() > kMaxTraceNote) {
    // Does not cut within a character: bytes 10xxxxxx continue one.
    size_t end = kMaxTraceNote;
    while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xc0) == 0x80) --end;
    shown = fmt::format("{}...", text.substr(0, end));
  }
  return nlohmann::json(shown).dump(-1, ' ', false,
                                    nlohmann::json::error_handler_t::replace);
}

// Nanoseconds written as microseconds, with every digit.
std::string microseconds(int64_t ns) {
  return fmt::format("{}.{:03}", ns / 1000, ns % 1000);
}

}  // namespace

struct TraceSpan::Open {
  uint64_t trace = 0;
  Record record;
};

void TraceSpan::Delete::operator()(Open* open) const { delete open; }

Trace::Trace(int64_t max_spans) {
  Recorded& r = recorded();
  const std::lock_guard lock(r.mutex);
  if (r.id != 0) return;
  r.names = {{1, "main"}};
  r.threads = 1;
  r.max_spans = max_spans;
  r.dropped = 0;
  id_ = r.id = ++r.last_id;
  calling_thread.trace = id_;
  calling_thread.number = 1;
  r.start_ns = now_ns();
  trace_listener.store(id_, std::memory_order_relaxed);
}

Trace::~Trace() {
  if (id_ == 0) return;
  Recorded& r = recorded();
  const std::lock_guard lock(r.mutex);
  trace_listener.store(0, std::memory_order_relaxed);
  r.id = 0;
  r.spans = {};
  r.names.clear();
}

std::string Trace::json() const {
  Recorded& r = recorded();
  const std::lock_guard lock(r.mutex);
  std::vector<const Record*> spans;
  int64_t dropped = 0;
  if (id_ != 0) {
    dropped = r.dropped;
    // Of two spans with the same times, the outer one ended last and comes
    // first.
    for (auto s = r.spans.rbegin(); s != r.spans.rend(); ++s) {
      spans.push_back(&*s);
    }
    std::stable_sort(spans.begin(), spans.end(),
                     [](const Record* a, const Record* b) {
                       return std::pair(a->start_ns, -a->end_ns) <
                              std::pair(b->start_ns, -b->end_ns);
                     });
  }
  const int pid = ::getpid();
  std::string out = fmt::format(
      "{{\"displayTimeUnit\":\"ms\",\"otherData\":{{\"tessera\":\"{}\","
      "\"dropped_spans\":{}}},\"traceEvents\":[\n"
      "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{},\"tid\":1,"
      "\"args\":{{\"name\":\"tessera\"}}}}",
      kVersion, dropped, pid);
  if (id_ != 0) {
    for (const auto& [number, name] : r.names) {
      out += fmt::format(
          ",\n{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{},\"tid\":{},"
          "\"args\":{{\"name\":{}}}}}",
          pid, number, json_text(name));
    }
  }
  for (const Record* s : spans) {
    out += fmt::format(
        ",\n{{\"ph\":\"X\",\"cat\":{},\"name\":{},\"ts\":{},\"dur\":{},"
        "\"pid\":{},\"tid\":{},\"args\":{{{}}}}}",
        json_text(s->category), json_text(s->name),
        microseconds(s->start_ns - r.start_ns),
        microseconds(s->end_ns - s->start_ns), pid, s->thread, s->notes);
  }
  return out + "\n]}\n";
}

// Without memory for it, a span is not recorded.
void TraceSpan::begin(uint64_t trace, const char* category, const char* name) {
  open_.reset(new (std::nothrow) Open);
  if (!open_) return;
  open_->trace = trace;
  open_->record.category = category;
  open_->record.name = name;
  open_->record.start_ns = now_ns();
}

void TraceSpan::end() {
  open_->record.end_ns = now_ns();
  Recorded& r = recorded();
  const std::lock_guard lock(r.mutex);
  // Another thread may have begun the trace after this span started.
  if (r.id != open_->trace || open_->record.start_ns < r.start_ns) return;
  try {
    if (static_cast<int64_t>(r.spans.size()) < r.max_spans) {
      open_->record.thread = number_thread(r);
      r.spans.push_back(std::move(open_->record));
      return;
    }
  } catch (const std::bad_alloc&) {
    // The span is dropped, like one beyond the limit.
  }
  ++r.dropped;
}

void TraceSpan::add_note(const char* key, int64_t value) {
  try {
    std::string& notes = open_->record.notes;
    notes +=
        fmt::format("{}{}:{}", notes.empty() ? "" : ",", json_text(key), value);
  } catch (const std::bad_alloc&) {
    // The span is kept without the note.
  }
}

void TraceSpan::add_note(const char* key, std::string_view value) {
  try {
    std::string& notes = open_->record.notes;
    notes += fmt::format("{}{}:{}", notes.empty() ? "" : ",", json_text(key),
                         json_text(value));
  } catch (const std::bad_alloc&) {
    // The span is kept without the note.
  }
}

void name_trace_thread(const char* kind, int number) {
  calling_thread.kind = kind;
  calling_thread.kind_number = number;
}

}  // namespace tessera
