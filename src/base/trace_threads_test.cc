// base/trace_threads_test.cc: reads spans back from the trace's own file; also
// run under the thread sanitizer.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "base/text.h"
#include "base/threads.h"
#include "base/trace.h"

namespace tessera {
namespace {

using nlohmann::json;

struct Events {
  json file;
  std::vector<json> spans;
  std::map<int, std::string> threads;  // names by number
};

Events read(const Trace& trace) {
  Events out;
  const std::string text = trace.json();
  EXPECT_TRUE(is_utf8(text));
  out.file = json::parse(text);
  for (const json& e : out.file["traceEvents"]) {
    EXPECT_EQ(e["pid"], getpid());
    if (e["ph"] == "X") {
      EXPECT_GE(e["ts"].get<double>(), 0);
      EXPECT_GE(e["dur"].get<double>(), 0);
      out.spans.push_back(e);
    } else if (e["name"] == "thread_name") {
      out.threads[e["tid"]] = e["args"]["name"];
    }
  }
  return out;
}

double start(const json& e) { return e["ts"]; }
double end(const json& e) {
  return e["ts"].get<double>() + e["dur"].get<double>();
}

TEST(Trace, HoldsNestedSpansInOrder) {
  const Trace trace;
  {
    const TraceSpan outer("test", "outer");
    { const TraceSpan first("test", "first"); }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    { const TraceSpan second("test", "second"); }
  }
  const Events e = read(trace);
  ASSERT_EQ(e.spans.size(), 3u);
  EXPECT_EQ(e.spans[0]["name"], "outer");
  EXPECT_EQ(e.spans[1]["name"], "first");
  EXPECT_EQ(e.spans[2]["name"], "second");
  for (const json& span : e.spans) {
    EXPECT_EQ(span["cat"], "test");
    EXPECT_EQ(span["tid"], 1);
    // Sums of decimal numbers are not exact.
    EXPECT_GE(start(span), start(e.spans[0]) - 1e-6);
    EXPECT_LE(end(span), end(e.spans[0]) + 1e-6);
  }
  EXPECT_LE(end(e.spans[1]) + 2000, start(e.spans[2]));
  EXPECT_LT(end(e.spans[0]), 60e6);  // microseconds
  EXPECT_EQ(e.threads, (std::map<int, std::string>{{1, "main"}}));
  EXPECT_EQ(e.file["displayTimeUnit"], "ms");
  EXPECT_EQ(e.file["otherData"]["dropped_spans"], 0);
}

TEST(Trace, LeavesOpenSpansOut) {
  const Trace trace;
  const TraceSpan open("test", "open");
  { const TraceSpan done("test", "done"); }
  const Events e = read(trace);
  ASSERT_EQ(e.spans.size(), 1u);
  EXPECT_EQ(e.spans[0]["name"], "done");
}

TEST(Trace, NothingIsRecordedWithoutOne) {
  EXPECT_EQ(trace_listener.load(), 0u);
  TraceSpan before("test", "before");
  before.note("n", 1);
  std::optional<TraceSpan> outlives;
  {
    const Trace trace;
    EXPECT_NE(trace_listener.load(), 0u);
    outlives.emplace("test", "outlives");
    EXPECT_TRUE(read(trace).spans.empty());
  }
  EXPECT_EQ(trace_listener.load(), 0u);
  const Trace next;
  outlives.reset();  // it began under another trace
  EXPECT_TRUE(read(next).spans.empty());
}

TEST(Trace, OneListensAtATime) {
  const Trace first;
  {
    const Trace second;
    { const TraceSpan span("test", "span"); }
    EXPECT_TRUE(read(second).spans.empty());
  }
  { const TraceSpan span("test", "span"); }
  EXPECT_EQ(read(first).spans.size(), 2u);
}

TEST(Trace, NotesAreText) {
  const std::string wild = "a\"b\\c\n\x01\xff z\xcc\x88";
  const Trace trace;
  {
    TraceSpan span("te\"st", "na\\me");
    span.note("bytes", int64_t{-7});
    span.note("path", wild);
    span.note("long", std::string(kMaxTraceNote - 1, 'x') + "\xc3\xa9");
    span.note("fits", std::string(kMaxTraceNote, 'x'));
  }
  const Events e = read(trace);
  ASSERT_EQ(e.spans.size(), 1u);
  EXPECT_EQ(e.spans[0]["cat"], "te\"st");
  EXPECT_EQ(e.spans[0]["name"], "na\\me");
  const json& args = e.spans[0]["args"];
  EXPECT_EQ(args["bytes"], -7);
  EXPECT_EQ(args["path"], "a\"b\\c\n\x01\xef\xbf\xbd z\xcc\x88");
  EXPECT_EQ(args["long"], std::string(kMaxTraceNote - 1, 'x') + "...");
  EXPECT_EQ(args["fits"], std::string(kMaxTraceNote, 'x'));
}

TEST(Trace, CountsWhatItDrops) {
  const Trace trace(3);
  for (int i = 0; i < 10; ++i) {
    TraceSpan span("test", "span");
    span.note("i", int64_t{i});
  }
  const Events e = read(trace);
  ASSERT_EQ(e.spans.size(), 3u);
  EXPECT_EQ(e.spans[2]["args"]["i"], 2);  // the first ones are kept
  EXPECT_EQ(e.file["otherData"]["dropped_spans"], 7);
}

TEST(Trace, TakesSpansOfManyThreads) {
  constexpr int kThreads = 4;
  constexpr int kSpans = 200;
  const Trace trace;
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    while (!stop) EXPECT_TRUE(json::accept(trace.json()));
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      name_trace_thread("test", t);
      for (int i = 0; i < kSpans; ++i) {
        TraceSpan outer("test", "outer");
        outer.note("thread", int64_t{t});
        TraceSpan inner("test", "inner");
        inner.note("thread", int64_t{t});
      }
    });
  }
  for (std::thread& t : threads) t.join();
  stop = true;
  reader.join();
  const Events e = read(trace);
  EXPECT_EQ(e.spans.size(), size_t{2} * kThreads * kSpans);
  std::map<int, std::set<int>> seen;
  for (const json& span : e.spans) {
    seen[span["args"]["thread"]].insert(span["tid"].get<int>());
  }
  ASSERT_EQ(seen.size(), size_t{kThreads});
  for (const auto& [t, numbers] : seen) {
    ASSERT_EQ(numbers.size(), 1u) << t;
    EXPECT_EQ(e.threads.at(*numbers.begin()), "test " + std::to_string(t));
  }
}

// Threads open spans while traces come and go.
TEST(Trace, MayEndBeforeItsSpans) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      while (!stop) {
        TraceSpan span("test", "span");
        span.note("n", int64_t{1});
      }
    });
  }
  for (int i = 0; i < 100; ++i) {
    const Trace trace(1000);
    (void)read(trace);
  }
  stop = true;
  for (std::thread& t : threads) t.join();
}

TEST(Trace, ShowsTheShareOfEveryWorker) {
  const Trace trace;
  parallel_for(
      64, 3,
      [](int64_t, int) {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      },
      "sleepers");
  const Events e = read(trace);
  ASSERT_GE(e.spans.size(), 1u);  // a late worker may find nothing to do
  int64_t tasks = 0;
  for (const json& span : e.spans) {
    EXPECT_EQ(span["cat"], "worker");
    EXPECT_EQ(span["name"], "sleepers");
    const std::string& name = e.threads.at(span["tid"]);
    EXPECT_TRUE(name == "main" || name.starts_with("worker ")) << name;
    tasks += span["args"]["tasks"].get<int64_t>();
  }
  EXPECT_EQ(tasks, 64);
}

}  // namespace
}  // namespace tessera
