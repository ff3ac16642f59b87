// data/parsed_lines.cc: threads take parts of some lines each in turn.
#include "data/parsed_lines.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "base/no_signals.h"
#include "data/json_document.h"

namespace tessera::data {
namespace {

// The size of a part: small, so that the last thread ends soon after the first.
constexpr int64_t kPartBytes = int64_t{1} << 16;

// Runs parts 0 to count - 1. The library's thread pool is left to attention,
// since a call that finds it busy runs on one thread. `work` must not throw.
void side_by_side(int64_t threads, size_t count,
                  const std::function<void(size_t part)>& work) {
  std::atomic<size_t> next{0};
  const auto take_parts = [&] {
    for (size_t part = next++; part < count; part = next++) work(part);
  };
  std::vector<std::thread> others;
  const auto most = std::min(count, static_cast<size_t>(threads));
  try {
    const NoSignals none;
    others.reserve(most);
    while (others.size() + 1 < most) others.emplace_back(take_parts);
  } catch (const std::exception&) {
    // No thread or no memory: the threads that exist do all the work.
  }
  take_parts();
  for (std::thread& other : others) other.join();
}

}  // namespace

void ParsedLines::split() {
  int64_t bytes = kPartBytes;
  for (size_t line = 0; line < lines_.size(); ++line) {
    if (bytes >= kPartBytes) {
      parts_.emplace_back().begin = line;
      bytes = 0;
    }
    bytes += lines_[line].bytes();
    parts_.back().end = line + 1;
  }
}

void ParsedLines::parse(Part& part, const Place& place) {
  try {
    part.fields.reserve(part.end - part.begin);
    for (size_t l = part.begin; l < part.end; ++l) {
      std::set<std::string> ignored;
      auto known = add_json_document(lines_[l].text, place(lines_[l].end),
                                     part.documents, ignored);
      if (!known) {
        part.error = known.error();
        return;
      }
      part.fields.push_back({*known, std::move(ignored)});
      lines_[l].text = std::string();  // the document replaces it
    }
  } catch (const std::exception&) {
    part.thrown = std::current_exception();
  }
}

void ParsedLines::parse(std::vector<Line> lines, int64_t threads,
                        const Place& place) {
  lines_ = std::move(lines);
  parts_.clear();
  part_ = document_ = 0;
  split();
  side_by_side(threads, parts_.size(),
               [&](size_t part) { parse(parts_[part], place); });
}

Result<void> ParsedLines::next(Documents& into, SourcePosition& end,
                               std::set<std::string>& ignored) {
  Part& part = parts_[part_];
  if (document_ == part.fields.size()) {
    if (part.thrown) std::rethrow_exception(part.thrown);
    return part.error;
  }
  const Fields& fields = part.fields[document_];
  copy_document(part.documents, document_, fields.known, into);
  for (const std::string& name : fields.ignored) ignore(name, ignored);
  end = lines_[part.begin + document_].end;
  ++document_;
  if (part.begin + document_ == part.end) {
    part = Part();  // frees its memory
    ++part_;
    document_ = 0;
  }
  return {};
}

}  // namespace tessera::data
